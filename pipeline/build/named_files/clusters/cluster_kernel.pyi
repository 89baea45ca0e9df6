"""See cluster_kernel.pyx."""

import numpy as np
from numpy.typing import NDArray

def parse_clusters(
    text: NDArray[np.uint8],
    members: NDArray[np.uint64],
    clusters: NDArray[np.uint64],
    weights: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Read lines of a table of clusters; stop after a line with a fault.

    Args:
        text: uint8[T], complete lines; the last one need not end with a line feed.
        members: uint64[n], output: key (xxh3_64 of the id) of each row's member. n is at least the
            number of lines.
        clusters: uint64[n], output: key of each row's representative, never 0.
        weights: uint64[n], output: weight of each row in units of 2^-30, rounded, never 0.
            uint64[0] for a table without weights.
    Returns:
        Number of rows (without blank lines), number of lines read, and the fault of the last line:
        - 0: no fault
        - 1: no tab
        - 2: a third column in a table without weights
        - 3: an empty id
        - 4: no third column in a table with weights
        - 5: a weight that is not a number from 1e-6 to 1e6
    """

def text_keys(
    values: NDArray[np.uint8],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    keys: NDArray[np.uint64],
) -> None:
    """Write the key (xxh3_64) of each text values[begin[i]:end[i]] to keys[i], uint64[N]."""

def join(first: NDArray[np.int64], second: NDArray[np.int64], root: NDArray[np.int64]) -> None:
    """Join the sets of first[i] and second[i], for every i.

    Args:
        first, second: int64[M], numbers in 0..n - 1.
        root: int64[n], before the call 0..n - 1, afterwards the smallest number in each number's
            set. The result does not depend on the order of the pairs.
    """
