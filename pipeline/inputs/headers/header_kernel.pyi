"""See header_kernel.pyx."""

import numpy as np
from numpy.typing import NDArray

def parse(
    ids: NDArray[np.uint8],
    id_edges: NDArray[np.int64],
    descriptions: NDArray[np.uint8],
    description_edges: NDArray[np.int64],
    spans: NDArray[np.int64],
    taxid: NDArray[np.int32],
    pe: NDArray[np.int8],
    fragment: NDArray[np.uint8],
    cluster_size: NDArray[np.int32],
    database: NDArray[np.int8],
) -> None:
    """Parse N headers.

    Args:
        ids: uint8[…], ids end to end; id i is ids[id_edges[i]:id_edges[i + 1]].
        id_edges: int64[N + 1], edges of the ids.
        descriptions: uint8[…], descriptions end to end.
        description_edges: int64[N + 1], edges of the descriptions.
        spans: int64[4, 2, N], output: begin and end of accession, name, organism and gene.
            These are positions in `ids` followed by `descriptions`. An empty span means that the
            header does not state the value.
        taxid, cluster_size: int32[N], output; -1 if the header does not state the value.
        pe: int8[N], output, level of protein existence, 1 to 5; -1 if not stated.
        fragment: uint8[N], output, 1 if the header marks the record as a fragment, else 0.
        database: int8[N], output, index into `schemas.records.DATABASES`; -1 if not known.
    """
