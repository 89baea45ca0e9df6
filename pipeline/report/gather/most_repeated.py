"""The records with the most duplicates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.report.model import TOP


def most_repeated(times: NDArray[np.uint32]) -> list[int]:
    """Return the ordinals (positions in the input order) of the records with the most duplicates.

    The result has at most TOP records, in descending order of duplicates. Records with equally many
    duplicates are in input order.

    times: uint32[records], number of duplicates of each record
    """
    how_often = np.bincount(times) if times.size else np.zeros(1, dtype=np.int64)
    at_least = np.cumsum(how_often[::-1])[::-1]  # at_least[k]: records with k duplicates or more
    enough = np.flatnonzero(at_least[1:] >= TOP)
    limit = int(enough[-1]) + 1 if enough.size else 1
    candidates = np.flatnonzero(times >= limit)
    order = np.lexsort((candidates, -times[candidates].astype(np.int64)))
    return [int(ordinal) for ordinal in candidates[order[:TOP]]]
