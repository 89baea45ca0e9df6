"""See complexity_kernel.pyx."""

import numpy as np
from numpy.typing import NDArray

WINDOW: int
"""Number of residues in a window."""
BITS: float
"""Maximum entropy of a window of low complexity, in bits per residue."""

def low_complexity(tokens: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the residues that are in a window of low complexity.

    A window of 12 residues is of low complexity if the Shannon entropy of its letters is at most
    2.2 bits. The program SEG uses the same values, under the names window and trigger. A record of
    fewer than 12 residues has no window.

    Args:
        tokens: uint8[T], residues of all records.
        ends: int64[R], index after each record's last residue.
    Returns:
        bool[T], True for a residue in such a window.
    Source: Wootton & Federhen, Computers & Chemistry 17 (1993).
    """
