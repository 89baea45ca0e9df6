"""Find equal hashes among the hashes of all records, in bounded memory."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline.build.verify.row_file import same_hash

_BLOCK: Final = 1 << 20
"""Number of hashes that are compared at a time. This limit bounds memory."""


def repeated(hashes: NDArray[Any], among: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the indices of the hashes that equal an earlier hash, int64[K].

    `equal_pairs` explains the arguments.
    """
    return np.sort(equal_pairs(hashes, among)[1])


def equal_pairs(
    hashes: NDArray[Any], among: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pair each hash that equals earlier hashes with the latest of them.

    Args:
        hashes: HASH_HALVES[N].
        among: bool[N], mask of the hashes to compare.
    Returns:
        int64[K], indices of the earlier hashes; int64[K], indices of the later hashes.
    """
    low = hashes["low"][among]
    low.sort()
    twice = low[1:][low[1:] == low[:-1]]
    suspects = with_low(hashes, among, twice)
    found = hashes[suspects]
    suspects = suspects[order := np.lexsort((suspects, found["high"], found["low"]))]
    equal = same_hash(found[order[1:]], found[order[:-1]])
    return suspects[:-1][equal], suspects[1:][equal]


def with_low(
    hashes: NDArray[Any], among: NDArray[np.bool_], low: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return the indices of the hashes whose lower half is in `low`, int64[K].

    Args:
        hashes: HASH_HALVES[N].
        among: bool[N], mask of the hashes to compare.
        low: uint64[M], sorted.
    """
    found = [np.empty(0, dtype=np.int64)]
    for begin in range(0, hashes.size if low.size else 0, _BLOCK):
        indices = begin + np.flatnonzero(among[begin : begin + _BLOCK])
        halves = hashes["low"][indices]
        nearest = low[np.minimum(np.searchsorted(low, halves), low.size - 1)]
        found.append(indices[nearest == halves])
    return np.concatenate(found)
