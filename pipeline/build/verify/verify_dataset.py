"""`thdpack verify`: compare a dataset with its manifest.

With --deep, records/ is also compared with the buckets. The deep check takes about 80 bytes per
record: 5 GB for 60 M records. Of these, 64 bytes are in a work file on the disk, in the folder for
temporary files. The file is mapped into memory, but the operating system may write its pages to the
disk when memory is scarce.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pipeline.build.retire.retired_files import retired_problems
from pipeline.build.task_results import VerifyResult
from pipeline.build.tasks import OnBytes
from pipeline.build.verify.check_shards import check_files, check_totals, verify_tasks
from pipeline.build.verify.compare_records import compare_records
from pipeline.build.verify.compare_retired import compare_retired
from pipeline.build.verify.verify_task import VerifyTask
from pipeline.executors.executor import Executor
from pipeline.executors.processes import ProcessExecutor, cores
from pipeline.storage.folder import Folder
from pipeline.storage.hub.revision import pinned
from pipeline.storage.open_folder import folder_of
from pipeline.storage.read_manifest import read_manifest
from schemas.manifest import Manifest
from schemas.text.generation import LATEST, Generation


def verify_dataset(
    dataset: str | Path,
    *,
    deep: bool,
    workers: int | None = None,
    generation: Generation = LATEST,
) -> list[str]:
    """Return one line for each problem of a generation of a dataset.

    Raises:
        ManifestError: the manifest is missing or damaged, or there is no such generation.
        BuildError: --deep needs more disk space, or a worker was killed.
        StoreError: a file could not be read, so nothing is known about it.
    """
    dataset = pinned(dataset)
    manifest = read_manifest(dataset, generation)
    with (
        tempfile.TemporaryDirectory(prefix="thdpack-verify-") as work,
        ProcessExecutor(workers or cores()) as executor,
    ):
        folder = folder_of(dataset)
        retired = retired_problems(folder, manifest)
        problems = [*check_totals(manifest), *retired]
        if not deep:
            return problems + _check_files(manifest, folder, Path(work), executor)
        faults, contradictions = compare_records(folder, manifest, Path(work), executor)
        if not faults and not retired:
            contradictions += compare_retired(folder, manifest, executor)
        return problems + faults or contradictions  # damaged files cannot be compared


def _check_files(manifest: Manifest, dataset: Folder, work: Path, executor: Executor) -> list[str]:
    tasks = verify_tasks(manifest, dataset, folder_of(work))
    found: dict[int, VerifyResult] = {}
    executor.run(check_files_once, tasks, found.__setitem__, lambda _: None)
    return [line for i in range(len(tasks)) for line in found[i].problems]


def check_files_once(task: VerifyTask, on_bytes: OnBytes, *, durable: bool) -> VerifyResult:
    """Check the files of a task. `Work` explains the arguments."""
    return check_files(task, on_bytes)
