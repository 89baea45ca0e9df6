"""See balanced_kernel.pyx. All functions write into the arrays they are given; indices point into `lengths`, int64[N]."""

import numpy as np
from numpy.typing import NDArray

def long_to_short(lengths: NDArray[np.int64], indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indices by falling length, int64[M], equal lengths in their order (counting sort)."""

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
    """LPT with a capacity: `members`, from long to short, each to the bucket with the least Σ length² that has room.

    A bucket without room for this length has none for a longer one, and may have for a shorter one: it is parked under its
    free tokens until the lengths come down to that.

    Args:
        members: int64[M], by falling length.
        bucket_of: int32[N], written where a member found room.
        by_length: int64[longest + 1], scratch, all -1 before and after.
        free, cost, count: int64[B], free tokens (the capacity to begin with), Σ length² and sequences (0 to begin with).
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
    """Add or exchange candidates so that each bucket's gap closes while its Σ length² stays near the mean.

    Args:
        members: int64[M], what was placed, or tried; candidates: int64[C], what waits. The other arguments as in `place`.
    """

def place_rest(
    lengths: NDArray[np.int64],
    rest: NDArray[np.int64],
    capacity: int,
    max_seqs: int,
    bucket_of: NDArray[np.int32],
    first_bucket: int,
) -> None:
    """Best-fit decreasing of the few that no window could use; `rest` is by falling length."""
