"""Markers: JSON files that tell a rerun which tasks have finished.

A finished task leaves a marker, `<name>.json`, in the work folder. The marker holds:

- a digest of everything that the task depended on, including the source code,
- the result of the task, with the size and hash of every file that the task wrote,
- a version tag of each of these files (see `Folder.version_tag`).

A rerun skips the task only if the digest matches, the result has the task's type
(`task_results.py`), and all files are unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import pyarrow as pa
import xxhash

from pipeline.build.clusters.draw_task import DrawTask
from pipeline.build.clusters.link_task import LinkTask
from pipeline.build.named_files.prepare_task import PrepareTask
from pipeline.build.progress.timeline import Span
from pipeline.build.search_stage.search_tasks import ClusterTask, SearchTask
from pipeline.build.task_results import (
    DrawResult,
    LinkResult,
    MapResult,
    PackResult,
    PreparedFile,
    WorkFile,
)
from pipeline.build.tasks import MapTask, ReduceTask, RestTask, Task
from pipeline.storage.folder import Folder
from pipeline.storage.signed_json import read_signed, signed
from schemas import __version__
from schemas.code_digest import code_digest
from schemas.manifest_entries import RecordsEntry, ShardEntry
from schemas.shard import SPLITS
from schemas.untrusted_json import decoded

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Result]):
    """Result of a task. `skipped` is True if the task had already finished."""

    result: Result
    skipped: bool
    span: Span


class _Marker(msgspec.Struct, forbid_unknown_fields=True):
    """Content of a marker.

    identity: digest of everything that the task depended on
    version_tags: `Folder.version_tag` of each file that the task wrote
    """

    identity: str
    result: msgspec.Raw
    version_tags: tuple[str | None, ...]


def believed(task: Task[Result], out: Folder) -> Result | None:
    """Return the result in a task's marker; None if there is no marker, or if the task or one of
    its files has changed.

    A marker that does not match is removed.
    """
    identity = _digest(task)
    if identity is None:
        return None
    content = task.work.content(_marker(task))
    marker = read_signed(content, _Marker)
    result = (
        _result_of(task, marker.result)
        if marker is not None and marker.identity == identity
        else None
    )
    if marker is not None and result is not None:
        outputs = list(_outputs(task, result, out))
        same = len(outputs) == len(marker.version_tags)
        if same and all(
            folder.holds(file.name, file.bytes, file.xxh3_128, version_tag)
            for (folder, file), version_tag in zip(outputs, marker.version_tags, strict=True)
        ):
            return result
    if content is not None:
        task.work.remove(_marker(task))
    return None


def finished(task: Task[Result], out: Folder) -> Result | None:
    """Return the result of a task that ran on another machine; None if the task has not finished.

    Only the sizes of the task's files are checked. This is enough, because that machine synced the
    files before it wrote the marker.
    """
    marker = read_signed(task.work.content(_marker(task)), _Marker)
    result = (
        None
        if marker is None or marker.identity != _digest(task)
        else _result_of(task, marker.result)
    )
    if result is None:
        return None
    return (
        result
        if all(folder.size(file.name) == file.bytes for folder, file in _outputs(task, result, out))
        else None
    )


def leave_marker(task: Task[Result], result: Result, out: Folder, *, durable: bool) -> None:
    """Write the marker of a task. Write nothing for a task that runs every time.

    durable: True to sync the task's files before the marker is written.
    """
    identity = _digest(task)
    if identity is None:
        return
    if durable:
        for folder, output in _outputs(task, result, out):
            folder.sync([output.name])
    version_tags = [
        folder.written_version_tag(file.name) for folder, file in _outputs(task, result, out)
    ]
    with task.work.written(_marker(task), durable=durable) as file:
        file.write(
            signed(
                {
                    "identity": identity,
                    "result": msgspec.to_builtins(result),
                    "version_tags": version_tags,
                }
            )
        )


def forget(task: Task[Result], result: Result, damaged: set[str], out: Folder) -> None:
    """Remove a task's marker if the task wrote one of the damaged files of the dataset."""
    if damaged & {
        file.name for _, file in _outputs(task, result, out) if not isinstance(file, WorkFile)
    }:
        task.work.remove(_marker(task))


def _marker(task: Task[Any]) -> str:
    return f"{task.name}.json"


def _digest(task: Task[Any]) -> str | None:
    """Return a digest of everything that a task's result depends on; None if the task leaves no
    marker."""
    identity = task.identity()
    if identity is None:
        return None
    values = {
        "name": task.name,
        "thdpack": __version__,
        "code": code_digest(),
        "pyarrow": pa.__version__,
        **identity,
    }
    return xxhash.xxh3_128_hexdigest(json.dumps(values, sort_keys=True).encode())


def _result_of(task: Task[Result], result_json: msgspec.Raw) -> Result | None:
    """Return the result in a marker; None if its type or its file names do not fit the task."""
    try:
        result = decoded(bytes(result_json), task.result_type)
    except ValueError:
        return None
    return result if _names_are_own(task, result) else None


def _names_are_own(task: Task[Any], result: object) -> bool:
    """Return whether the file names in a result are those that its task uses."""
    if isinstance(task, MapTask) and isinstance(result, MapResult):
        return result.spill.name == task.spill
    if isinstance(task, PrepareTask) and isinstance(result, PreparedFile):
        return result.file.name == task.prepared
    if isinstance(task, ClusterTask | SearchTask) and isinstance(result, PreparedFile):
        return result.file.name == task.output
    if isinstance(task, LinkTask) and isinstance(result, LinkResult):
        return result.links.name == task.links
    if isinstance(task, DrawTask) and isinstance(result, DrawResult):
        return result.members.name == task.members
    if isinstance(task, ReduceTask | RestTask) and isinstance(result, PackResult):
        return _packed_names_are_own(task, result)
    return True


def _packed_names_are_own(task: ReduceTask | RestTask, result: PackResult) -> bool:
    """Return whether the variants and file names in a result are those of its task."""
    variants = [task.variant] if isinstance(task, RestTask) else list(task.job.variants)
    if [packed.variant for packed in result.packed] != variants:
        return False
    for packed in result.packed:
        if set(packed.shards) != set(SPLITS) or set(packed.statistics) != set(SPLITS):
            return False
        stem = task.stem(packed.variant)
        for split, entries in packed.shards.items():
            names = (entry.name for entry in entries)
            begin = f"{split}/{stem}-"
            if not all(name.startswith(begin) and "/" not in name[len(begin) :] for name in names):
                return False
        rest = None if packed.rest is None else packed.rest.name
        if rest != (None if task.final else task.rest(packed.variant)):
            return False
    records = None if result.records is None else result.records.name
    return records == (f"records/{task.stem(0)}.parquet" if 0 in variants else None)


def _outputs(
    task: Task[Any], result: object, out: Folder
) -> Iterator[tuple[Folder, ShardEntry | RecordsEntry | WorkFile]]:
    """Yield each file of a result, with the folder that the file's name is relative to."""
    if isinstance(result, PackResult):
        for packed in result.packed:
            yield from ((out, entry) for entries in packed.shards.values() for entry in entries)
            if packed.rest is not None:
                yield task.work, packed.rest
        if result.records is not None:
            yield out, result.records
    elif isinstance(result, MapResult):
        yield task.work, result.spill
    elif isinstance(result, PreparedFile):
        yield task.work, result.file
    elif isinstance(result, LinkResult):
        yield task.work, result.links
    elif isinstance(result, DrawResult):
        yield task.work, result.members
