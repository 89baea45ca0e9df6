"""See baselines_kernel.pyx."""

import numpy as np
from numpy.typing import NDArray

def best_fit(
    lengths: NDArray[np.int64], capacity: int, max_seqs: int, num_open: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pack by best-fit with `num_open` open buckets.

    Returns:
        int64[N], bucket of each sequence; int64[num_open], numbers of the buckets that are open at
        the end.
    """

def best_fit_decreasing(
    lengths: NDArray[np.int64], order: NDArray[np.int64], capacity: int, max_seqs: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pack by best-fit in the given order. All buckets stay open.

    Returns:
        int64[N], bucket of each sequence; int64[B], number of free tokens of each of the B buckets.
    """
