"""Sequences of kept records, in shuffled order.

Reduce tasks and the report's predictions use these pure functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import shuffle_keys, window_starts
from pipeline.build.options import DatasetOptions
from pipeline.build.reduce_stage.deduplicate import KEPT


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequences:
    """N sequences of kept records.

    begin:    int64[N], index of a sequence's first residue in the token array
    residues: int64[N], number of residues, after cropping, without <cls> and <eos>
    ordinal:  int64[N], ordinal of a sequence's record: its number among all input records
    start:    int64[N], index of a sequence's first residue in its record
    first:    bool[N], True for the first sequence of a record; only with --long split, a record
              may have more than one
    key:      uint64[N], sort key of the shuffle
    """

    begin: NDArray[np.int64]
    residues: NDArray[np.int64]
    ordinal: NDArray[np.int64]
    start: NDArray[np.int64]
    first: NDArray[np.bool_]
    key: NDArray[np.uint64]

    def __len__(self) -> int:
        return int(self.begin.size)

    def take(self, indices: NDArray[np.int64] | NDArray[np.bool_]) -> Sequences:
        """Return the sequences at `indices`, int64[M] or bool[N]."""
        return Sequences(
            begin=self.begin[indices],
            residues=self.residues[indices],
            ordinal=self.ordinal[indices],
            start=self.start[indices],
            first=self.first[indices],
            key=self.key[indices],
        )


def shuffle_order(sequences: Sequences) -> NDArray[np.int64]:
    """Return the indices that put sequences of many partitions into shuffled order, int64[N]."""
    return np.lexsort((sequences.start, sequences.ordinal, sequences.key))


def shuffled_sequences(
    residues: NDArray[np.int64],
    status: NDArray[np.int8],
    hashes: NDArray[np.void],
    ordinals: NDArray[np.int64],
    begin: NDArray[np.int64],
    options: DatasetOptions,
    seed: int,
) -> tuple[Sequences, NDArray[np.int64]]:
    """Crop or split the kept records of a partition into sequences, and shuffle the sequences.

    Args:
        residues: int64[N], number of residues of each record, in input order.
        ordinals: int64[N], ordinal of each record.
        status: int8[N], status of each record.
        hashes: HASH[N], hash of each record.
        begin: int64[N], index of each record's first residue in the token array.
        seed: seed of the shuffle and of random windows; see `variant_seed`.
    Returns:
        The M sequences in shuffled order, and int64[M], the index of each sequence's record.
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
    key = shuffle_keys(hashes[row], ordinals[row], piece, seed)
    start = window_starts(key, residues[row], most) if options.long == "crop" else piece * most
    order = np.argsort(key)  # four times as fast as a stable sort
    if (key[order][1:] == key[order][:-1]).any():
        order = np.argsort(key, kind="stable")  # equal keys stay in the order of ordinal and piece
    sequences = Sequences(
        begin=begin[row] + start,
        residues=np.minimum(residues[row] - start, most),
        ordinal=ordinals[row],
        start=start,
        first=piece == 0,
        key=key,
    )
    return sequences.take(order), row[order]


def round_up_all(lengths: NDArray[np.int64], multiple: int) -> NDArray[np.int64]:
    """Return lengths, int64[N], each rounded up to a multiple of `multiple`."""
    return -(-lengths // multiple) * multiple if multiple > 1 else lengths
