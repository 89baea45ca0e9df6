"""Find duplicates among the records of a partition.

Reduce tasks and the report's predictions use these pure functions.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.build.hash_index.index_runs import EarlierRecords
from pipeline.build.options import DatasetOptions
from schemas.records import STATUS_CODES, Status

KEPT: Final = STATUS_CODES.index(Status.KEPT)
DUPLICATE: Final = STATUS_CODES.index(Status.DUPLICATE)


def residues_by_status(status: NDArray[np.int8], residues: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of residues of each status, int64[statuses]. Sums below 2^53 are exact."""
    sums = np.bincount(status, weights=residues, minlength=len(STATUS_CODES))
    return sums.astype(np.int64)


def mark_duplicates(
    status: NDArray[np.int8], hashes: NDArray[np.void], ordinals: NDArray[np.int64]
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Give the status `duplicate` to every kept record that has the hash of an earlier kept record
    in the same array. (`mark_known` finds duplicates of records from before an append.)

    1. Sort kept records by the upper half of their hash; return if all halves differ.
    2. Sort records with equal upper halves by the whole hash. Among equal hashes, the earliest
       record comes first.
    3. In each group of equal hashes, all records after the first are duplicates of the first.

    Args:
        status: int8[N], index into STATUS_CODES.
        hashes: HASH[N], equal for records that are duplicates.
        ordinals: int64[N], number of each record among all input records, ascending.
    Returns:
        int8[N], the new status; int64[N], the ordinal of the kept record that a duplicate repeats,
        -1 for other records.
    """
    status = status.copy()
    duplicate_of = np.full(status.size, -1, dtype=np.int64)
    kept = np.flatnonzero(status == KEPT)
    high, low = hashes["high"][kept].astype(np.uint64), hashes["low"][kept].astype(np.uint64)
    order = np.argsort(high)
    equal = high[order][1:] == high[order][:-1]
    if not equal.any():
        return status, duplicate_of
    has_equal = np.concatenate((equal, [False])) | np.concatenate(([False], equal))
    order = order[has_equal]
    order = order[np.lexsort((order, low[order], high[order]))]
    same = np.concatenate(
        ([False], (high[order][1:] == high[order][:-1]) & (low[order][1:] == low[order][:-1]))
    )
    first = order[np.maximum.accumulate(np.where(same, 0, np.arange(order.size)))]
    status[kept[order[same]]] = DUPLICATE
    duplicate_of[kept[order[same]]] = ordinals[kept[first[same]]]
    return status, duplicate_of


def mark_known(
    status: NDArray[np.int8],
    hashes: NDArray[np.void],
    duplicate_of: NDArray[np.int64],
    earlier: EarlierRecords,
) -> NDArray[np.int8]:
    """Mark the kept records whose sequence the dataset already had before this append. Return
    int8[N], the new status.

    Args:
        status: int8[N], index into STATUS_CODES.
        hashes: HASH[N], equal for records that are duplicates.
        duplicate_of: int64[N]; this function stores the ordinals of the earlier records in it.
    Raises:
        DamagedIndexError: the hash index is damaged.
    """
    kept = np.flatnonzero(status == KEPT)
    found = earlier.find(hashes[kept])
    known = kept[found >= 0]
    status = status.copy()
    status[known] = DUPLICATE
    duplicate_of[known] = found[found >= 0]
    return status


def cropped_copy_candidates(
    status: NDArray[np.int8],
    residues: NDArray[np.int64],
    options: DatasetOptions,
) -> NDArray[np.int64]:
    """Return the indices, int64[M], of kept records that may equal another record after
    cropping."""
    if options.long != "truncate":
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero((status == KEPT) & (residues >= options.longest_piece))


def count_copies(first_pieces: NDArray[np.void]) -> int:
    """Return the number of hashes in HASH[M] that equal an earlier hash."""
    return int(first_pieces.size - np.unique(np.ascontiguousarray(first_pieces).view("S16")).size)
