"""Markers of finished tasks: what is finished is recognised, what is not is done again.

A task that has run leaves `<name>.json` in the work folder: what it depended on, and the size and hash of every file it
wrote. A rerun believes the marker only if both still hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import xxhash

from pipeline.folders import Folder
from pipeline.sources import unchanged
from pipeline.tasks import HashTask, MapTask, Task
from schemas import __version__
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
    result = None if identity is None else _believed(marker, identity, task.work, out)
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
        file.write(json.dumps({"identity": identity, "result": result, "marks": marks}, sort_keys=True).encode())
    return Outcome(result, skipped=False)


def forget(task: Task, result: dict[str, Any], damaged: set[str], out: Folder) -> None:
    """Have the next run do a task again, if a file of the dataset that it wrote is damaged, whatever its size and etag say."""
    if damaged & {name for folder, name, _, _ in _outputs(result, task.work, out) if folder is out}:
        task.work.remove(f"{task.name}.json")


def finished(task: Task, out: Folder) -> dict[str, Any] | None:
    """The result of a task that ran elsewhere, or None; its files are looked at, not read: `run_once` was told to make them durable."""
    noted = _noted(task.work, f"{task.name}.json")
    if noted.get("identity") != _digest(task):
        return None
    result: dict[str, Any] = noted["result"]
    return result if all(folder.size(name) == size for folder, name, size, _ in _outputs(result, task.work, out)) else None


def _noted(work: Folder, marker: str) -> dict[str, Any]:
    """What a marker says; nothing if it is not there, or was cut short by a power failure."""
    try:
        noted: dict[str, Any] = json.loads(work.content(marker) or b"{}")
    except ValueError:
        return {}
    return noted


def _digest(task: Task) -> str | None:
    """Names everything that the task's result depends on."""
    identity = task.identity()
    if identity is None:
        return None
    values = {"name": task.name, "thdpack": __version__, "pyarrow": pa.__version__, **identity}
    return xxhash.xxh3_128_hexdigest(json.dumps(values, sort_keys=True).encode())


def _believed(marker: str, identity: str, work: Folder, out: Folder) -> dict[str, Any] | None:
    """The result in a marker, if it is of this very task and every file it names is as it was."""
    noted = _noted(work, marker)
    result: dict[str, Any] | None = noted.get("result") if noted.get("identity") == identity else None
    if result is not None:
        outputs = _outputs(result, work, out)
        if all(folder.holds(name, size, digest, mark) for (folder, name, size, digest), mark in zip(outputs, noted["marks"], strict=True)):
            return result
    if noted:
        work.remove(marker)
    return None


def _outputs(result: dict[str, Any], work: Folder, out: Folder) -> list[tuple[Folder, str, int, str]]:
    entries = [entry for shards in result.get("shards", {}).values() for entry in shards]
    entries += [result["records"]] if isinstance(result.get("records"), dict) else []
    named = [(out, entry["name"], entry["bytes"], entry["xxh3_128"]) for entry in entries]
    return named + [(work, name, size, digest) for name, size, digest in result.get("spills", [])]
