"""Look up many 128-bit hashes among a sorted list of hashes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import HASH


class HashTable:
    """Sorted hashes. A table of their first bits answers most lookups without a binary search."""

    def __init__(self, hashes: NDArray[np.bytes_]) -> None:
        """
        Args:
            hashes: S16[K], ascending and distinct.
        """
        self._hashes = hashes
        bits = min(24, max(8, (16 * hashes.size).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._begins = np.zeros(1 << bits, dtype=np.bool_)
        self._begins[self._first_bits(hashes.view(HASH))] = True

    def _first_bits(self, hashes: NDArray[np.void]) -> NDArray[np.uint64]:
        return hashes["high"].astype(np.uint64) >> self._shift

    def find(self, hashes: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the index of each hash in the list, int64[N]; -1 for a hash that the list lacks.

        Args:
            hashes: HASH[N].
        """
        found = np.full(hashes.size, -1, dtype=np.int64)
        possible = np.flatnonzero(self._begins[self._first_bits(hashes)])
        if possible.size:
            wanted = as_bytes(hashes[possible])
            at = np.minimum(np.searchsorted(self._hashes, wanted), self._hashes.size - 1)
            same = self._hashes[at] == wanted
            found[possible[same]] = at[same]
        return found


def as_bytes(hashes: NDArray[np.void]) -> NDArray[np.bytes_]:
    """Return HASH[N] as S16[N]. numpy compares byte strings fast."""
    return np.ascontiguousarray(hashes).view("S16")
