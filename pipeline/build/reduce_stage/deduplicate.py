"""Which records of a partition are kept, and as which sequences, in which order: pure functions, for reduce tasks and for predictions."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import shuffle_keys
from pipeline.build.options import DatasetOptions
from pipeline.build.reduce_stage.write_shards import Sequences
from schemas.records import STATUS_CODES, Status

KEPT: Final = STATUS_CODES.index(Status.KEPT)
DUPLICATE: Final = STATUS_CODES.index(Status.DUPLICATE)


def shuffle_order(sequences: Sequences) -> NDArray[np.int64]:
    """What puts the rests of many partitions into shuffled order, int64[N]."""
    return np.lexsort((sequences.start, sequences.ordinal, sequences.key))


def mark_duplicates(
    status: NDArray[np.int8], hashes: NDArray[np.void], ordinals: NDArray[np.int64]
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Status of each record, and for duplicates the ordinal of the record that stays (else -1).

    Args:
        status: int8[N], index into STATUS_CODES, before duplicates are looked for; ordinals: int64[N], rising.
        hashes: HASH[N], the same for records that are duplicates.
    """
    status = status.copy()
    duplicate_of = np.full(status.size, -1, dtype=np.int64)
    kept = np.flatnonzero(status == KEPT)
    high, low = hashes["high"][kept].astype(np.uint64), hashes["low"][kept].astype(np.uint64)
    order = np.argsort(high)
    equal = high[order][1:] == high[order][:-1]
    if not equal.any():
        return status, duplicate_of
    in_run = np.concatenate((equal, [False])) | np.concatenate(([False], equal))
    order = order[in_run]
    order = order[np.lexsort((order, low[order], high[order]))]
    same = np.concatenate(
        ([False], (high[order][1:] == high[order][:-1]) & (low[order][1:] == low[order][:-1]))
    )
    first = order[np.maximum.accumulate(np.where(same, 0, np.arange(order.size)))]
    status[kept[order[same]]] = DUPLICATE
    duplicate_of[kept[order[same]]] = ordinals[kept[first[same]]]
    return status, duplicate_of


def cropped_copy_candidates(
    status: NDArray[np.int8],
    residues: NDArray[np.int64],
    options: DatasetOptions,
) -> NDArray[np.int64]:
    """Return the kept records that may be the same as another one once they are truncated; int64[M], their indices."""
    if options.long != "truncate":
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero((status == KEPT) & (residues >= options.longest_piece))


def count_copies(first_pieces: NDArray[np.void]) -> int:
    """Return how many of these are the same as one before them; first_pieces: HASH[M]."""
    return int(first_pieces.size - np.unique(np.ascontiguousarray(first_pieces).view("S16")).size)


def shuffled_sequences(
    residues: NDArray[np.int64],
    status: NDArray[np.int8],
    hashes: NDArray[np.void],
    ordinals: NDArray[np.int64],
    begin: NDArray[np.int64],
    options: DatasetOptions,
) -> tuple[Sequences, NDArray[np.int64]]:
    """The kept records of a partition as sequences in shuffled order, long ones cropped or cut, and the row of each.

    Args:
        residues, status, hashes, ordinals: of each record, in input order.
        begin: int64[N], where its residues start in the token array.
    """
    kept = np.flatnonzero(status == KEPT)
    most = options.longest_piece
    pieces = (
        -(-residues[kept] // most)
        if options.long == "split"
        else np.ones(kept.size, dtype=np.int64)
    )
    row = np.repeat(kept, pieces)
    piece = np.arange(row.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = piece * most
    key = shuffle_keys(hashes[row], ordinals[row], piece, options.seed)
    order = np.argsort(key)  # four times as fast as a stable sort
    if (key[order][1:] == key[order][:-1]).any():
        order = np.argsort(key, kind="stable")  # equal keys stay in the order of ordinal and piece
    sequences = Sequences(
        begin=begin[row] + start,
        residues=np.minimum(residues[row] - start, most),
        ordinal=ordinals[row],
        start=start,
        key=key,
    )
    return sequences.take(order), row[order]
