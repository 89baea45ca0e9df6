"""`thdpack verify`: compare a dataset with its manifest.

With --deep, records/ is also compared with the buckets. The deep check takes about 60 bytes of
memory per record: 4 GB for 60 M records.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from pipeline.build.run_task import run_once
from pipeline.build.verify.check_shards import check_totals, verify_tasks
from pipeline.build.verify.compare_records import compare_records
from pipeline.executors.processes import ProcessExecutor, cores
from pipeline.storage.open_folder import folder_of
from pipeline.storage.read_manifest import read_manifest


def verify_dataset(dataset: str | Path, *, deep: bool, workers: int | None = None) -> list[str]:
    """Return one line for each problem of a dataset.

    Raises:
        ManifestError: the manifest is missing or damaged.
    """
    manifest = read_manifest(dataset)
    problems = check_totals(manifest)
    with (
        tempfile.TemporaryDirectory(prefix="thdpack-verify-") as work,
        ProcessExecutor(workers or cores()) as executor,
    ):
        tasks = verify_tasks(manifest, folder_of(dataset), folder_of(work))
        found: list[list[str]] = [[] for _ in tasks]
        executor.run(
            partial(run_once, out=folder_of(dataset)),
            tasks,
            lambda i, outcome: found[i].extend(outcome.result.problems),
            lambda _: None,
        )
    problems += [line for lines in found for line in lines]
    if deep and not problems:  # damaged shards cannot be compared
        problems += compare_records(dataset, manifest)
    return problems
