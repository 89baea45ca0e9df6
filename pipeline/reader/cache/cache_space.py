"""Compare the space that a cache will need with the free space, before a run begins."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from pipeline.storage.atomic_write import nearest_existing
from pipeline.storage.retries import CacheError
from schemas.manifest_entries import ShardEntry


def check_cache_space(folder: Path, limit: int, shards: Iterable[ShardEntry]) -> None:
    """Refuse a cache whose disk has too little free space for the shards of a run.

    The cache needs space for each shard that it does not hold, but never more than its limit.

    Args:
        limit: maximum total size of the shards in the folder, in bytes.
        shards: shards that the run reads. Equal shards are one file.
    Raises:
        CacheError: the space is too small. The message is for the command line.
    """
    held = _sizes(folder)
    used = sum(held.values())
    wanted = {f"{entry.xxh3_128}.arrow": entry.bytes for entry in shards}
    missing = sum(size for name, size in wanted.items() if name not in held)
    needed = min(missing, max(limit - used, 0))
    free = shutil.disk_usage(nearest_existing(folder)).free
    if free < needed:
        raise CacheError(
            f"{folder}: the disk has {free:,} bytes of free space, but the cache needs {needed:,} "
            "more bytes for shards of this run; make room, choose a folder on another disk with "
            f"--cache-dir, or lower --cache-bytes (now {limit:,}) to at most {used + free:,}"
        )


def _sizes(folder: Path) -> dict[str, int]:
    """Return the size in bytes of each shard in a cache, by file name."""
    if not folder.is_dir():
        return {}
    with os.scandir(folder) as entries:
        return {
            entry.name: entry.stat(follow_symlinks=False).st_size
            for entry in entries
            if entry.name.endswith(".arrow") and entry.is_file(follow_symlinks=False)
        }
