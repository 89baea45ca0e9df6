"""Compare the ids in retired/ with those in records/. Only `--deep` does this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.build.arrays.arrow_arrays import one_chunk
from pipeline.build.generations.read_records import row_groups
from pipeline.build.retire.retired_files import RetiredFile, read_retired, retired_files
from pipeline.build.tasks import OnBytes
from pipeline.build.verify.findings import Findings
from pipeline.executors.executor import Executor
from pipeline.reader.arrow_columns import numbers
from pipeline.storage.folder import Folder
from schemas.manifest import Manifest
from schemas.manifest_entries import RecordsEntry

_last_read: tuple[tuple[RetiredFile, ...], Mapping[int, str]] | None = None
"""Files that this process has read last, and the id of each record in them."""


@dataclass(frozen=True, slots=True)
class RetiredIdsTask:
    """Compare the retired records of one records/ file.

    retired: all files of retired/, which have no faults
    """

    dataset: Folder
    entry: RecordsEntry
    retired: tuple[RetiredFile, ...]


def compare_retired(dataset: Folder, manifest: Manifest, executor: Executor) -> list[str]:
    """Return a line if records are retired under another id than records/ gives them.

    Raises:
        DatasetError: a file cannot be read.
        BuildError: a worker was killed.
    """
    retired = tuple(retired_files(manifest))
    if not retired:
        return []
    tasks = [RetiredIdsTask(dataset, entry, retired) for entry in manifest.records]
    results: dict[int, Findings] = {}
    executor.run(_compare_ids, tasks, results.__setitem__, lambda _: None)
    findings = Findings()
    findings.merge([results[i] for i in range(len(tasks))])
    return findings.lines()


def _compare_ids(task: RetiredIdsTask, on_bytes: OnBytes, *, durable: bool) -> Findings:
    """Return the records that are retired under another id. `Work` explains the arguments.

    Raises:
        DatasetError: a file cannot be read.
    """
    ids = _ids(task)
    ordinals = np.fromiter(ids, dtype=np.int64, count=len(ids))
    findings = Findings()
    for group in row_groups(task.dataset, task.entry, ("ordinal", "id")):
        ordinal = numbers(one_chunk(group.column("ordinal")), np.int64)
        rows = np.flatnonzero(np.isin(ordinal, ordinals))
        found = group.column("id").take(rows).to_pylist()
        wrong = [at for at, id in zip(ordinal[rows].tolist(), found, strict=True) if ids[at] != id]
        findings.add("retired under another id", np.array(wrong, dtype=np.int64))
    return findings


def _ids(task: RetiredIdsTask) -> Mapping[int, str]:
    """Return the id of each retired record, by ordinal."""
    global _last_read
    if _last_read is None or _last_read[0] != task.retired:
        ids: dict[int, str] = {}
        for file in task.retired:
            table = read_retired(task.dataset, file)
            columns = (table.column(name).to_pylist() for name in ("ordinal", "id"))
            ids.update(zip(*columns, strict=True))
        _last_read = task.retired, ids
    return _last_read[1]
