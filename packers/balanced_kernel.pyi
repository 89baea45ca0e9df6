"""See balanced_kernel.pyx.

Functions write into their arguments. Indices point into `lengths`, int64[N].
"""

import numpy as np
from numpy.typing import NDArray

def long_to_short(lengths: NDArray[np.int64], indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices, int64[M], by falling length; equal lengths stay in order."""

def place(
    lengths: NDArray[np.int64],
    members: NDArray[np.int64],
    capacity: int,
    max_seqs: int,
    bucket_of: NDArray[np.int32],
    first_bucket: int,
    by_length: NDArray[np.int64],
    free: NDArray[np.int64],
    cost: NDArray[np.int64],
    count: NDArray[np.int64],
) -> None:
    """Give each member, from long to short, to the bucket with the least Σ length² that has room.

    A bucket without room for the current length is listed under its free tokens. It is considered
    again once lengths have fallen to that number.

    Args:
        members: int64[M], by falling length.
        bucket_of: int32[N], written where a member found room.
        by_length: int64[longest + 1], scratch, all -1 before and after.
        free: int64[B], free tokens; the capacity at first.
        cost, count: int64[B], Σ length² and sequences; 0 at first.
    """

def close_gaps(
    lengths: NDArray[np.int64],
    members: NDArray[np.int64],
    candidates: NDArray[np.int64],
    max_seqs: int,
    bucket_of: NDArray[np.int32],
    first_bucket: int,
    by_length: NDArray[np.int64],
    free: NDArray[np.int64],
    cost: NDArray[np.int64],
    count: NDArray[np.int64],
) -> None:
    """Add or exchange candidates to close each bucket's gap and keep its Σ length² near the mean.

    Args:
        members: int64[M], sequences that `place` placed or tried.
        candidates: int64[C], sequences that wait. The other arguments are those of `place`.
    """

def place_rest(
    lengths: NDArray[np.int64],
    rest: NDArray[np.int64],
    max_seqs: int,
    bucket_of: NDArray[np.int32],
    first_bucket: int,
    opened: int,
    free: NDArray[np.int64],
    count: NDArray[np.int64],
) -> None:
    """Place sequences that found no room by best-fit decreasing, in new buckets where they must.

    Args:
        rest: int64[R], by falling length.
        opened: buckets that exist, the first `opened` of `free` and `count`.
        free, count: int64[opened + R], free tokens and sequences of each bucket, new ones included.
    """
