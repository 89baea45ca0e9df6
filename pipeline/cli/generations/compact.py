"""`thdpack compact`: rewrite a dataset of several generations as one build of all inputs."""

from __future__ import annotations

import time

from pipeline.build.append.options import CompactOptions
from pipeline.build.progress.reporter import reporter
from pipeline.cli.summary import print_built
from schemas.errors import OptionError


def run_compact(options: CompactOptions) -> int:
    """Rewrite a dataset, print its summary, and return an exit code.

    Raises:
        ThdpackError: see `pipeline.build.append.compact_dataset.compact`.
        OptionError: no input is named.
    """
    if not options.inputs:
        raise OptionError("no input given: name all inputs that the dataset was built from")
    if options.dry_run:
        from pipeline.cli.generations.compact_dry_run import print_compact_plan

        return print_compact_plan(options)
    started = time.perf_counter()
    # imported here, as in preprocess.py
    from pipeline.build.append.compact_dataset import compact

    with reporter(as_json=options.log_json) as report:
        built = compact(options, report)
    print_built(
        built,
        options.dataset,
        as_json=options.log_json,
        seconds=time.perf_counter() - started,
        known="all files of the dataset come from one build",
    )
    return 0
