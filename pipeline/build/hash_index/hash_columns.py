"""Hashes of sequences as columns, and their order in a run of the hash index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.build.hash_index.sort_kernel import count, scatter, sort_buckets

_BUCKET_ROWS: Final = 8
"""Approximate number of rows in each bucket of the sort."""


@dataclass(frozen=True, slots=True)
class HashColumns:
    """Hashes of N sequences, and the ordinals of their kept records.

    high, low: uint64[N], the two halves of the hashes
    ordinal: int64[N]
    """

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    ordinal: NDArray[np.int64]


def sorted_by_hash(parts: list[HashColumns]) -> HashColumns:
    """Return all rows, sorted by `high`, then `low`. Empty the list `parts`, so that the result can
    use the memory of the parts.

    This takes a third of the time of `numpy.argsort`, because hashes are uniformly distributed.
    """
    size = sum(part.ordinal.size for part in parts)
    bits = max(1, (size // _BUCKET_ROWS).bit_length())
    shift = 64 - bits
    counts = np.zeros(1 << bits, dtype=np.int64)
    for part in parts:
        count(part.high, shift, counts)
    ends = np.cumsum(counts)
    places = ends - counts
    rows = np.empty((size, 3), dtype=np.uint64)
    while parts:
        part = parts.pop()
        scatter(part.high, part.low, part.ordinal, shift, places, rows)
    run = HashColumns(
        np.empty(size, dtype=np.uint64),
        np.empty(size, dtype=np.uint64),
        np.empty(size, dtype=np.int64),
    )
    sort_buckets(rows, ends, run.high, run.low, run.ordinal)
    return run
