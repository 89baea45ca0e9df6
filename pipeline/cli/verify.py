"""`thdpack verify`: print the problems of a dataset."""

from __future__ import annotations

import json
import sys
import time

from pipeline.build.garbage.unnamed_files import unnamed_files
from pipeline.build.verify.verify_dataset import verify_dataset
from pipeline.cli.options.subcommand_options import VerifyOptions
from pipeline.inputs.file_names import some_names
from pipeline.storage.hub.revision import pinned
from pipeline.storage.read_manifest import read_manifest
from schemas.text.phrases import REBUILD, plural
from schemas.text.redact import without_credentials


def run_verify(options: VerifyOptions) -> int:
    """Verify a dataset, print its problems, and return an exit code.

    Raises:
        ThdpackError: the manifest is missing or damaged, or the dataset's store does not answer.
    """
    started = time.monotonic()
    dataset = pinned(options.dataset)
    manifest = read_manifest(dataset, options.generation)
    problems = verify_dataset(
        dataset,
        deep=options.deep,
        workers=options.workers,
        generation=manifest.digest,  # the dataset may grow after the manifest was read
    )
    # this reads the latest manifest again: files of a generation that was committed meanwhile have
    # a name, too
    unnamed = unnamed_files(dataset)
    if options.json:
        files = list(manifest.files())
        values = {
            "dataset": without_credentials(options.dataset),
            "digest": manifest.digest,
            "generation": manifest.generation,
            "deep": options.deep,
            "ok": not problems,
            "problems": problems,
            "unnamed": unnamed,
            "files": len(files),
            "bytes": sum(entry.bytes for entry in files),
            "seconds": round(time.monotonic() - started, 3),
        }
        print(json.dumps(values))
        return 1 if problems else 0
    if unnamed:
        count, them = plural(len(unnamed), "file"), "it" if len(unnamed) == 1 else "them"
        print(
            f"note: no generation names {count}, so readers ignore {them}: "
            f"{some_names('', unnamed)}; `thdpack gc` lists what earlier builds left behind",
            file=sys.stderr,
        )
    for problem in problems:
        print(problem)
    if problems:
        print(f"thdpack verify: {REBUILD}", file=sys.stderr)
        return 1
    deep = "; every row of records/ agrees with its buckets" if options.deep else ""
    print(f"{without_credentials(options.dataset)}: verified, nothing wrong{deep}")
    return 0
