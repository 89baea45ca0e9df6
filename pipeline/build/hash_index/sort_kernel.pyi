"""See sort_kernel.pyx."""

import numpy as np
from numpy.typing import NDArray

def count(high: NDArray[np.uint64], shift: int, counts: NDArray[np.int64]) -> None:
    """Count the rows of each bucket.

    Args:
        high: uint64[N], upper halves of hashes. A hash is in bucket high >> shift.
        counts: int64[B], output: numbers of rows, to which this call adds. B is 2^(64 - shift).
    """

def scatter(
    high: NDArray[np.uint64],
    low: NDArray[np.uint64],
    ordinal: NDArray[np.int64],
    shift: int,
    places: NDArray[np.int64],
    rows: NDArray[np.uint64],
) -> None:
    """Copy rows to their buckets.

    Args:
        high, low: uint64[N], halves of the hashes.
        ordinal: int64[N].
        places: int64[B], index in `rows` of each bucket's next row; this call advances them.
        rows: uint64[M, 3], output: halves of the hash and ordinal of each row.
    """

def sort_buckets(
    rows: NDArray[np.uint64],
    ends: NDArray[np.int64],
    high: NDArray[np.uint64],
    low: NDArray[np.uint64],
    ordinal: NDArray[np.int64],
) -> None:
    """Sort the rows of each bucket by hash, and copy them to columns.

    The time grows with the square of a bucket's size, so hashes must be uniformly distributed.

    Args:
        rows: uint64[M, 3], halves of the hash and ordinal of each row; changed by this call.
        ends: int64[B], index after the last row of each bucket.
        high, low: uint64[M], output: halves of the hashes.
        ordinal: int64[M], output.
    """
