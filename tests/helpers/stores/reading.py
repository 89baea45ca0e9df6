"""Functions that read buckets from a reader, and check the files in its cache."""

from __future__ import annotations

import contextlib
import fcntl
from itertools import islice
from pathlib import Path

import xxhash

from pipeline.reader import ShardReader


def tokens(reader: ShardReader, count: int) -> list[bytes]:
    return [bucket.input_ids.tobytes() for bucket in islice(reader, count)]


def assert_cache_is_sound(cache: Path) -> None:
    for path in cache.iterdir():
        if path.suffix == ".arrow":
            assert xxhash.xxh3_128_hexdigest(path.read_bytes()) == path.stem
        else:
            assert path.name == "lock"


def bytes_in(cache: Path) -> int:
    sizes = {}
    with (cache / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # while this lock is held, no reader adds or removes files
        for path in cache.iterdir():
            with contextlib.suppress(FileNotFoundError):  # the file was renamed after it was listed
                stat = path.stat()
                sizes[stat.st_ino] = stat.st_size  # by inode, because a file may have two names
    return sum(sizes.values())
