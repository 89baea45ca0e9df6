"""See balanced_kernel.pyx.

Functions write into their arguments. `lengths`, int64[N], holds the number of tokens of each
sequence. Indices are positions in `lengths`. B is the number of buckets, and a gap is the number of
free tokens of a bucket.
"""

import numpy as np
from numpy.typing import NDArray

def long_to_short(lengths: NDArray[np.int64], indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices, int64[M], in descending order of length. The sort is stable."""

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
    """Put each member, from long to short, into the bucket with the least Σ length² that has room.

    A bucket without room for the current length is set aside. The bucket returns when the current
    length has fallen to the bucket's number of free tokens. `by_length` lists the buckets that are
    set aside, by number of free tokens.

    Args:
        members: int64[M], indices in descending order of length.
        bucket_of: int32[N], bucket of each sequence; set for each member that finds room.
        first_bucket: number of the first of the B buckets.
        by_length: int64[largest length + 1], scratch memory; all values are -1 before and after
            the call.
        free: int64[B], number of free tokens of each bucket; equal to capacity before the call.
        cost, count: int64[B], Σ length² and number of sequences of each bucket; 0 before the call.
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
    """Add or exchange candidates, to close gaps and to keep Σ length² of each bucket near the mean.

    Args:
        members: int64[M], indices that were passed to `place`.
        candidates: int64[C], indices of sequences without a bucket.
        Other arguments: the arguments of `place`, with the values that `place` left in them.
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
        rest: int64[R], indices of the sequences that found no room, in descending order of length.
        opened: number of existing buckets, which are the first entries of `free` and `count`.
        free, count: int64[opened + R], number of free tokens and number of sequences of each
            bucket; the last R entries are for new buckets.
    """
