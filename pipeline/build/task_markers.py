"""Markers of finished tasks: what is finished is recognised, what is not is done again.

A task that has run leaves `<name>.json` in the work folder: what it depended on, the code that ran included, and the size and hash of every file it
wrote. A rerun believes the marker only if both still hold, and if it is what such a task leaves (see `pipeline.build.task_results`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import xxhash

from pipeline.build.signed_json import read_signed, signed
from pipeline.build.task_results import result_of
from pipeline.build.tasks import HashTask, MapTask, Task
from pipeline.inputs.find import unchanged
from pipeline.storage.folder import Folder
from schemas import __version__
from schemas.code_digest import code_digest
from schemas.errors import BuildError, InputError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a task gave, and whether an earlier run had already done it."""

    result: dict[str, Any]
    skipped: bool


def run_once(task: Task, out: Folder, on_bytes: Callable[[int], None], *, durable: bool = False) -> Outcome:
    """Run a task unless its marker says, and its outputs prove, that it was done.

    Args:
        out: the dataset's folder, which shard and records names are relative to.
        durable: what it leaves for later tasks survives a power cut before its marker does. For tasks whose results are used by whoever
            did not see them run, on another machine, and reads no hash again (see `finished`).
    Raises:
        ThdpackError: what the task raises; BuildError if a file that an earlier task left is gone, InputError if its input is not what was planned.
    """
    identity = _digest(task)
    marker = f"{task.name}.json"
    result = None if identity is None else _believed(task, identity, out)
    if result is not None:
        return Outcome(result, skipped=True)
    try:
        result = task.run(on_bytes)
    except FileNotFoundError as error:
        raise BuildError(f"{task.name}: {error.filename} is gone, or this machine does not see it; run the same command to go on") from error
    if isinstance(task, MapTask | HashTask) and not unchanged(task.source):  # asked afterwards: now it was the planned file from first byte to last
        raise InputError("changed while it was read, or since it was planned; run the same command again", source=task.source.url)
    if identity is None:
        return Outcome(result, skipped=False)
    if durable:
        task.work.sync([name for name, _, _ in result.get("spills", [])])
    marks = [folder.mark_of_written(name) for folder, name, _, _ in _outputs(result, task.work, out)]
    with task.work.written(marker, durable=durable) as file:
        file.write(signed({"identity": identity, "result": result, "marks": marks}))
    return Outcome(result, skipped=False)


def forget(task: Task, result: dict[str, Any], damaged: set[str], out: Folder) -> None:
    """Have the next run do a task again, if a file of the dataset that it wrote is damaged, whatever its size and etag say."""
    if damaged & {name for folder, name, _, _ in _outputs(result, task.work, out) if folder is out}:
        task.work.remove(f"{task.name}.json")


def finished(task: Task, out: Folder) -> dict[str, Any] | None:
    """The result of a task that ran elsewhere, or None; its files are looked at, not read: `run_once` was told to make them durable."""
    noted = read_signed(task.work.content(f"{task.name}.json"), _Marker)
    result = None if noted is None or noted.identity != _digest(task) else result_of(task, noted.result)
    if result is None:
        return None
    return result if all(folder.size(name) == size for folder, name, size, _ in _outputs(result, task.work, out)) else None


class _Marker(msgspec.Struct, forbid_unknown_fields=True):
    """What a marker says. marks: of each file that the task wrote (see pipeline.storage.folder)."""

    identity: str
    result: msgspec.Raw
    marks: tuple[str | None, ...]


def _digest(task: Task) -> str | None:
    """Names everything that the task's result depends on."""
    identity = task.identity()
    if identity is None:
        return None
    values = {"name": task.name, "thdpack": __version__, "code": code_digest(), "pyarrow": pa.__version__, **identity}
    return xxhash.xxh3_128_hexdigest(json.dumps(values, sort_keys=True).encode())


def _believed(task: Task, identity: str, out: Folder) -> dict[str, Any] | None:
    """The result in a task's marker, if it is of this very task and every file it names is as it was."""
    content = task.work.content(f"{task.name}.json")
    noted = read_signed(content, _Marker)
    result = result_of(task, noted.result) if noted is not None and noted.identity == identity else None
    if noted is not None and result is not None:
        outputs = _outputs(result, task.work, out)
        same = len(outputs) == len(noted.marks)
        if same and all(folder.holds(name, size, digest, mark) for (folder, name, size, digest), mark in zip(outputs, noted.marks, strict=True)):
            return result
    if content is not None:
        task.work.remove(f"{task.name}.json")
    return None


def _outputs(result: dict[str, Any], work: Folder, out: Folder) -> list[tuple[Folder, str, int, str]]:
    entries = [entry for shards in result.get("shards", {}).values() for entry in shards]
    entries += [result["records"]] if isinstance(result.get("records"), dict) else []
    named = [(out, entry["name"], entry["bytes"], entry["xxh3_128"]) for entry in entries]
    return named + [(work, name, size, digest) for name, size, digest in result.get("spills", [])]
