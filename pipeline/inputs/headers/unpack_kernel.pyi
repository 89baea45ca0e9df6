"""See unpack_kernel.pyx."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def unpack(
    ids: NDArray[np.uint8],
    id_edges: NDArray[np.int64],
    packed: NDArray[np.uint8],
    packed_edges: NDArray[np.int64],
    values: Sequence[NDArray[np.uint8]],
    edges: NDArray[np.int32],
    taxid: NDArray[np.int32],
    pe: NDArray[np.int8],
    fragment: NDArray[np.uint8],
    cluster_size: NDArray[np.int32],
    database: NDArray[np.int8],
) -> bool:
    """Unpack N packed headers. Return False if one of them is malformed.

    A malformed header yields arbitrary values, but no byte outside the arrays is read or written.

    Args:
        ids: uint8[I], ids end to end; id i is ids[id_edges[i]:id_edges[i + 1]].
        id_edges: int64[N + 1], edges of the ids.
        packed: uint8[P], packed headers end to end.
        packed_edges: int64[N + 1], edges of the packed headers.
        values: outputs: accessions, at least uint8[max(1, I)]; names, at least
            uint8[max(1, I + P)]; organisms, genes and descriptions, each at least
            uint8[max(1, P)].
        edges: int32[5, N + 1], output: edges of these texts, in the same order.
        taxid, cluster_size: int32[N], output; -1 if the header does not state the value.
        pe: int8[N], output, level of protein existence, 1 to 5; -1 if not stated.
        fragment: uint8[N], output, 1 if the header marks the record as a fragment, else 0.
        database: int8[N], output, index into `schemas.records.DATABASES`; -1 if not known.
    """
