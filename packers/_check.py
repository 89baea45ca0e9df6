"""The argument check that all packers share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def checked_lengths(
    lengths: NDArray[np.int64], *, capacity: int, max_seqs: int
) -> NDArray[np.int64]:
    """Return `lengths` as contiguous int64[N].

    Raises:
        ValueError: a length is outside 1..capacity, or max_seqs is below 1.
    """
    if max_seqs < 1:
        raise ValueError(f"max_seqs is {max_seqs}, expected at least 1")
    bad = np.flatnonzero((lengths < 1) | (lengths > capacity))
    if bad.size:
        raise ValueError(f"sequence {bad[0]} has {lengths[bad[0]]} tokens, expected 1..{capacity}")
    return np.ascontiguousarray(lengths, dtype=np.int64)
