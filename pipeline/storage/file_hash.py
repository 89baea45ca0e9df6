"""Hash a file, and compare it with its entry in a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

import xxhash

from pipeline.storage.open_input import open_input
from schemas.manifest_entries import RecordsEntry, ShardEntry

_BLOCK: Final = 1 << 20


def hash_file(path: str | Path) -> tuple[int, str]:
    """Return the size in bytes and the xxh3_128 (hexadecimal) of a local file or URL.

    The file is read once, in pieces of 1 MiB.

    Raises:
        InputError: the file cannot be read.
    """
    digest = xxhash.xxh3_128()
    size = 0
    buffer = memoryview(bytearray(_BLOCK))
    with open_input(str(path)) as file:
        while count := cast(int, file.readinto(buffer)):  # type: ignore[attr-defined]
            digest.update(buffer[:count])
            size += count
    return size, digest.hexdigest()


def difference(
    path: str | Path, found_size: int, found: str, entry: ShardEntry | RecordsEntry
) -> str | None:
    """Return a message if a file differs from its entry in the manifest, else None."""
    if found_size != entry.bytes:
        return (
            f"{path}: has {found_size} bytes, but the manifest says {entry.bytes}: "
            "the file was truncated or replaced"
        )
    if found != entry.xxh3_128:
        return (
            f"{path}: its xxh3_128 is {found}, but the manifest says {entry.xxh3_128}: "
            "its content changed after the build"
        )
    return None
