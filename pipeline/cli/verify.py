"""`thdpack verify`: print the problems of a dataset."""

from __future__ import annotations

import sys

from pipeline.build.verify.verify_dataset import verify_dataset
from pipeline.cli.options.subcommand_options import VerifyOptions
from schemas.text.phrases import REBUILD
from schemas.text.redact import without_credentials


def run_verify(options: VerifyOptions) -> int:
    """Verify a dataset, print one line for each problem, and return an exit code.

    Raises:
        ThdpackError: the manifest is missing or damaged, or the dataset's store does not answer.
    """
    problems = verify_dataset(
        options.dataset,
        deep=options.deep,
        workers=options.workers,
        generation=options.generation,
    )
    for problem in problems:
        print(problem)
    if problems:
        print(f"thdpack verify: {REBUILD}", file=sys.stderr)
        return 1
    deep = "; every row of records/ agrees with its buckets" if options.deep else ""
    print(f"{without_credentials(options.dataset)}: verified, nothing wrong{deep}")
    return 0
