"""See balanced_kernel.pyx.

Functions write into their arguments. Indices are positions in `lengths`, int64[N], the number of
tokens of each sequence. B is the number of buckets, and a gap is a bucket's free tokens.
"""

import numpy as np
from numpy.typing import NDArray

def long_to_short(lengths: NDArray[np.int64], indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices, int64[M], in descending order of length; equal lengths stay in order."""

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

    A bucket without room for the current length is set aside until the length has fallen to the
    number of the bucket's free tokens. `by_length` lists these buckets by free tokens.

    Args:
        members: int64[M], indices in descending order of length.
        bucket_of: int32[N], bucket of each sequence; set for each member that finds room.
        first_bucket: number of the first of the B buckets.
        by_length: int64[longest + 1], scratch memory, all -1 before and after the call.
        free: int64[B], number of free tokens of each bucket; before the call, the capacity.
        cost, count: int64[B], Σ length² and number of sequences; before the call, 0.
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
        members: int64[M], indices that were passed to `place`.
        candidates: int64[C], indices of sequences without a bucket.
        The other arguments are those of `place`, after that call.
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
    """Place sequences that found no room, by best-fit decreasing. Open new buckets if necessary.

    Args:
        rest: int64[R], indices of these sequences, in descending order of length.
        opened: number of buckets that exist; they are first in `free` and `count`.
        free, count: int64[opened + R], numbers of free tokens and of sequences of each bucket; the
            last R entries are for new buckets.
    """
