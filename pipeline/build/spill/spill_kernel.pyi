"""See spill_kernel.pyx."""

import numpy as np
from numpy.typing import NDArray

def pack(
    tokens: NDArray[np.uint8],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Write the runs tokens[begin[i]:end[i]] end to end into `out`, at 5 bits a token.

    Args:
        tokens: uint8[T], ids below 32.
        out: uint8[n], the output. n is at least Σ ceil(5 · (end - begin) / 8) + 3. The bytes after
            the packed runs have arbitrary values afterwards.
    """

def unpack(packed: NDArray[np.uint8], sizes: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    """Undo `pack`.

    Args:
        packed: uint8[…], packed runs.
        sizes: int64[N], number of tokens in each run.
        out: uint8[Σ sizes], the output.
    """
