"""Facts of all records in one work file, which processes share by mapping the file into memory. The
index of a row is the record's ordinal: its number among all input records.

A row takes 64 bytes, which is one cache line. Checking a sequence reads one row. The operating
system may write pages of the file to disk when memory is scarce.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import BuildError

HASH_HALVES: Final = np.dtype([("high", np.uint64), ("low", np.uint64)])
"""An xxh3_128 as two integers of this machine's byte order."""

ROW: Final = np.dtype(
    [
        ("hash", HASH_HALVES),
        ("residues", np.int64),
        ("unknown", np.int64),
        ("duplicate_of", np.int64),
        ("shard", np.uint64),
        ("cluster", np.uint64),
        ("bucket", np.int32),
        ("status", np.int8),
        ("split", np.int8),
        ("present", np.uint8),
        ("seen", np.uint8),
    ]
)
"""Facts of one record.

hash, residues, unknown: as in records/
duplicate_of, bucket: as in records/; -1 for null
shard:   `shard_key` of the shard's name; 0 for null
cluster: as in records/; 0 for null
status:  index into `Status`; -2 for any other word
split:   index into SPLITS; -1 for null, -2 for any other word
present: 1 if records/ has a row for this record
seen:    1 if the bucket that the row names holds the record's first sequence
"""
_BYTES: Final = np.dtype((np.void, ROW.itemsize))


def reserve(path: Path, size: int) -> None:
    """Create a file of `size` zeros, and reserve its disk space.

    Raises:
        BuildError: the disk has too little space.
    """
    try:
        with path.open("xb") as file:
            file.truncate(max(size, 1))
            if hasattr(os, "posix_fallocate"):
                # without space on the disk, writing to a mapping would kill the process
                os.posix_fallocate(file.fileno(), 0, max(size, 1))
    except OSError as error:
        raise BuildError(
            f"{path}: cannot reserve {size} bytes for --deep: {error.strerror or error}; "
            "set TMPDIR to a folder with more space"
        ) from error


@lru_cache(maxsize=4)  # the pages that a task has touched stay mapped for the next task
def mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a work file as an array, dtype[N]. Changes are written to the file."""
    if path.stat().st_size < dtype.itemsize:
        return np.empty(0, dtype=dtype)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r+"))


def rows_at(rows: NDArray[Any], ordinal: NDArray[np.int64]) -> NDArray[Any]:
    """Return `rows[ordinal]`, ROW[K]. `take` is faster, because it does not copy field by field."""
    return rows.take(ordinal)


def put_rows(rows: NDArray[Any], ordinal: NDArray[np.int64], new: NDArray[Any]) -> None:
    """Set `rows[ordinal] = new`, but copy whole rows instead of field by field, which is faster."""
    rows.view(_BYTES)[ordinal] = new.view(_BYTES)


def same_hash(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the hashes that are equal, bool[N]."""
    equal: NDArray[np.bool_] = (left["high"] == right["high"]) & (left["low"] == right["low"])
    return equal
