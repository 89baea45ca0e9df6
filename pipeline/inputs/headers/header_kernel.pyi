"""See header_kernel.pyx."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST_BYTES: Final = 58
"""Maximum bytes of a packed header without its texts."""
SPARE_BYTES: Final = 64
"""Bytes that the kernels may write after the last byte of their output."""

def pack(
    ids: NDArray[np.uint8],
    id_edges: NDArray[np.int64],
    descriptions: NDArray[np.uint8],
    description_edges: NDArray[np.int64],
    order: NDArray[np.int64],
    keep_description: bool,
    packed: NDArray[np.uint8],
    packed_edges: NDArray[np.int64],
) -> None:
    """Parse M of N headers, and pack the values that they state.

    Args:
        ids: uint8[…], ids end to end; id i is ids[id_edges[i]:id_edges[i + 1]].
        id_edges: int64[N + 1], edges of the ids.
        descriptions: uint8[…], descriptions end to end.
        description_edges: int64[N + 1], edges of the descriptions.
        order: int64[M], indices of the headers to pack.
        keep_description: whether to pack the whole description, too.
        packed: uint8[…], output. Its size is at least the sum of MOST_BYTES for each header, the
            bytes of the descriptions (twice with `keep_description`), and SPARE_BYTES.
        packed_edges: int64[M + 1], output, edges of the packed headers.
    """
