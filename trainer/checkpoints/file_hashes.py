"""hashes.json: size and xxh3_128 hash of each file of a checkpoint, computed during the write.

    {"version": 1, "files": {"__0_0.distcp": {"bytes": 1234, "xxh3_128": "…"}, ".metadata": …},
        "digest": "…"}

Before a checkpoint is loaded, all its files are compared with their hashes. Each rank compares a
share of the files, in several threads. `digest` is the xxh3_128 of the canonical JSON of version
and files.

The hashes detect damage, not tampering. An attacker who can change a file can change its hash too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import xxhash

from schemas.errors import CheckpointError
from schemas.untrusted_json import decoded
from trainer.checkpoints.atomic_write import write
from trainer.distributed.agreement import all_gather, run_on_main
from trainer.distributed.topology import Topology

HASHES: Final = "hashes.json"
_VERSION: Final = 1
_BLOCK: Final = 4 << 20
"""Number of bytes to read at a time."""
_AT_ONCE: Final = 8
"""Number of files that a rank reads at the same time. Eight files keep most disks busy."""
_NAME: Final = re.compile(r"[\w.-]*\w")
"""Valid name of a file. It has no slash, and so cannot point outside of the checkpoint's folder."""


class FileHash(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size and hash of a file."""

    bytes: int
    xxh3_128: str


class _Hashes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    files: dict[str, FileHash]
    digest: str


def write_hashes(folder: Path, files: dict[str, FileHash]) -> None:
    """Write hashes.json into a folder. The other files must already be on the disk."""
    write(
        folder / HASHES,
        json.dumps(
            {"version": _VERSION, "files": msgspec.to_builtins(files), "digest": _digest(files)},
            indent=1,
        ),
    )


def read_hashes(folder: Path) -> dict[str, FileHash]:
    """Return the hash of each file of a checkpoint, by the file's name.

    Raises:
        CheckpointError: hashes.json is missing or damaged.
    """
    path = folder / HASHES
    try:
        found = decoded(path.read_bytes(), _Hashes)
    except FileNotFoundError as error:
        reason = (
            "an older thdpack wrote this checkpoint, or it was only partly copied"
            if folder.is_dir()
            else "no such checkpoint exists"
        )
        raise CheckpointError(f"{folder} has no {HASHES}: {reason}") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    if found.version != _VERSION or found.digest != _digest(found.files):
        raise CheckpointError(f"{path} is damaged: it does not match its own digest")
    if not all(_NAME.fullmatch(name) for name in found.files):
        raise CheckpointError(f"{path} names a file outside of its folder")
    return found.files


def damage(folder: Path, topology: Topology) -> str:
    """Compare a checkpoint's files with their hashes. All ranks must call this. Each rank reads a
    share of the files.

    Returns:
        Description of the damage, the same on all ranks; "" if no file is damaged.
    """
    try:
        files: dict[str, FileHash] = run_on_main(topology, partial(read_hashes, folder))
    except CheckpointError as error:
        return str(error)
    found = _problems(folder, sorted(files.items())[topology.rank :: topology.world_size])
    return _described(folder, list(chain.from_iterable(all_gather(topology, found))))


def damage_found_here(folder: Path) -> str:
    """Return the same as `damage`. This process reads all files."""
    try:
        files = read_hashes(folder)
    except CheckpointError as error:
        return str(error)
    return _described(folder, _problems(folder, sorted(files.items())))


def _problems(folder: Path, files: Sequence[tuple[str, FileHash]]) -> list[str]:
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="thdpack-hash") as threads:
        return [problem for problem in threads.map(partial(_compare, folder), files) if problem]


def _described(folder: Path, problems: list[str]) -> str:
    return (
        ""
        if not problems
        else f"{folder} is damaged: "
        + "; ".join(problems[:3])
        + (f"; {len(problems) - 3} more files" if problems[3:] else "")
    )


def hash_file(path: Path) -> FileHash:
    """Read a file once and return its hash.

    Raises:
        OSError: the file cannot be read.
    """
    found, size, block = xxhash.xxh3_128(), 0, memoryview(bytearray(_BLOCK))
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while count := file.readinto(block):
            found.update(block[:count])
            size += count
    return FileHash(size, found.hexdigest())


def _compare(folder: Path, file: tuple[str, FileHash]) -> str:
    name, expected = file
    try:
        found = hash_file(folder / name)
    except OSError as error:
        return f"{name} cannot be read ({error.strerror})"
    if found.bytes != expected.bytes:
        return f"{name} has {found.bytes:,} bytes, but {expected.bytes:,} were written"
    return "" if found == expected else f"the content of {name} has changed since it was written"


def _digest(files: dict[str, FileHash]) -> str:
    canonical = json.dumps(
        [_VERSION, msgspec.to_builtins(files)], sort_keys=True, separators=(",", ":")
    )
    return xxhash.xxh3_128_hexdigest(canonical.encode())
