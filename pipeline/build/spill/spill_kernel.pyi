"""See spill_kernel.pyx."""

import numpy as np
from numpy.typing import NDArray

def pack(
    tokens: NDArray[np.uint8],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Write the slices tokens[begin[i]:end[i]] end to end into `out`, at 5 bits per token.

    Args:
        tokens: uint8[T], ids below 32.
        out: uint8[n], the output. n is at least Σ ceil(5 · (end - begin) / 8) + 3. The call
            leaves arbitrary values in the bytes after the packed slices.
    """

def unpack(packed: NDArray[np.uint8], sizes: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    """Undo `pack`.

    Args:
        packed: uint8[…], packed slices, end to end.
        sizes: int64[N], number of tokens in each slice.
        out: uint8[Σ sizes], the output.
    """
