"""See baselines_kernel.pyx."""

import numpy as np
from numpy.typing import NDArray

def best_fit(
    lengths: NDArray[np.int64], capacity: int, max_seqs: int, num_open: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bounded best-fit: int64[N], bucket of each sequence, and int64[num_open], the buckets open at the end."""

def best_fit_decreasing(
    lengths: NDArray[np.int64], order: NDArray[np.int64], capacity: int, max_seqs: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Best-fit in the given order, all buckets open: int64[N], bucket of each sequence, and int64[B], free tokens."""
