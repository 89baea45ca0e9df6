"""Markers of finished tasks: what is finished is recognised, what is not is done again.

A task that has run leaves `<name>.json` in the work folder: what it depended on, and the size and hash of every file it
wrote. A rerun believes the marker only if both still hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from pipeline.storage import hash_file, sync_files, write_json
from pipeline.tasks import Task
from schemas import __version__
from schemas.errors import BuildError, InputError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a task gave, and whether an earlier run had already done it."""

    result: dict[str, Any]
    skipped: bool


def run_once(task: Task, out: Path, on_bytes: Callable[[int], None], *, durable: bool = False) -> Outcome:
    """Run a task unless its marker says, and its outputs prove, that it was done.

    Args:
        out: the dataset's folder, which shard and records names are relative to.
        durable: what it leaves for later tasks survives a power cut before its marker does. For tasks whose results are used by whoever
            did not see them run, on another machine, and reads no hash again (see `finished`).
    Raises:
        ThdpackError: what the task raises; BuildError if a file that an earlier task left is gone.
    """
    identity = _digest(task)
    marker = task.work / f"{task.name}.json"
    result = _believed(marker, identity, task.work, out)
    if result is not None:
        return Outcome(result, skipped=True)
    marker.unlink(missing_ok=True)
    try:
        result = task.run(on_bytes)
    except FileNotFoundError as error:
        raise BuildError(f"{task.name}: {error.filename} is gone, or this machine does not see it; run the same command to go on") from error
    if durable:
        sync_files([task.work / name for name, _, _ in result.get("spills", [])])
    write_json(marker, {"identity": identity, "result": result}, scratch=task.work, durable=durable)
    return Outcome(result, skipped=False)


def finished(task: Task, out: Path) -> dict[str, Any] | None:
    """The result of a task that ran elsewhere, or None; its files are looked at, not read: `run_once` was told to make them durable."""
    return _believed(task.work / f"{task.name}.json", _digest(task), task.work, out, read=False)


def _digest(task: Task) -> str:
    """Names everything that the task's result depends on."""
    values = {"name": task.name, "thdpack": __version__, "pyarrow": pa.__version__, **task.identity()}
    return xxhash.xxh3_128_hexdigest(json.dumps(values, sort_keys=True).encode())


def _believed(marker: Path, identity: str, work: Path, out: Path, *, read: bool = True) -> dict[str, Any] | None:
    """The result in a marker, if it is of this very task and every file it names is as it was; without `read`, as large as it was."""
    try:
        noted = json.loads(marker.read_bytes())
    except (FileNotFoundError, ValueError):  # never run, or cut short by a power failure: run it
        return None
    if noted.get("identity") != identity:
        return None
    result: dict[str, Any] = noted["result"]
    for path, size, digest in _outputs(result, work, out):
        try:
            if path.stat().st_size != size or (read and hash_file(path) != (size, digest)):
                return None
        except (FileNotFoundError, InputError):
            return None
    return result


def _outputs(result: dict[str, Any], work: Path, out: Path) -> list[tuple[Path, int, str]]:
    entries = [entry for shards in result.get("shards", {}).values() for entry in shards]
    entries += [result["records"]] if isinstance(result.get("records"), dict) else []
    named = [(out / entry["name"], entry["bytes"], entry["xxh3_128"]) for entry in entries]
    return named + [(work / name, size, digest) for name, size, digest in result.get("spills", [])]
