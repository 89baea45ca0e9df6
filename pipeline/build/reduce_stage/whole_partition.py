"""A partition whose records fit into memory.

The records of the partition are read from the spills (the map tasks' files) as one run of
consecutive records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import first_piece_hashes, split_hashes, split_of
from pipeline.build.hash_index.index_runs import EarlierRecords
from pipeline.build.options import DatasetOptions
from pipeline.build.reduce_stage.deduplicate import (
    KEPT,
    count_copies,
    cropped_copy_candidates,
    mark_duplicates,
    mark_known,
    residues_by_status,
)
from pipeline.build.reduce_stage.exclude_records import RecordExclusion
from pipeline.build.reduce_stage.record_rows import RecordRows
from pipeline.build.reduce_stage.spilled_records import RecordRun
from pipeline.build.tasks import OnBytes
from schemas.records import STATUS_CODES


@dataclass(slots=True, kw_only=True)
class Partition:
    """Records whose sequences are packed together.

    rows:           one row for each kept record, with status and split; other records may also
                    have rows
    tokens:         uint8[T], residue tokens
    begin:          int64[len(rows)], index of each row's first residue in `tokens`
    counts:         int64[statuses], number of records of each status
    residues:       int64[statuses], number of residues of the records of each status
    cropped_copies: number of kept records that equal an earlier record after truncation
    """

    rows: RecordRows
    tokens: NDArray[np.uint8]
    begin: NDArray[np.int64]
    counts: NDArray[np.int64]
    residues: NDArray[np.int64]
    cropped_copies: int = 0

    def rows_to_write(
        self, to_write: NDArray[np.bool_], left_over: NDArray[np.int64]
    ) -> Iterator[RecordRows]:
        """Yield the partition's rows for records/, in input order.

        Args:
            to_write: bool[len(rows)], mask of the rows to yield.
            left_over: int64[M], indices that the caller passes to `take` after this iterator ends.
        """
        yield self.rows.take(np.flatnonzero(to_write)).sorted_by_ordinal()

    def take(self, row: NDArray[np.int64]) -> RecordRows:
        """Return the rows at `row`, int64[M]."""
        return self.rows.take(row)


def whole_partition(
    run: RecordRun,
    options: DatasetOptions,
    on_bytes: OnBytes,
    exclusion: RecordExclusion | None = None,
    earlier: EarlierRecords | None = None,
) -> Partition:
    """Mark excluded records and duplicates of a run, assign splits, and return the run as a
    partition.

    Args:
        exclusion: object that marks the excluded records; None without --exclude.
        earlier: records that the dataset had before this append; None if there are none, or with
            --dedup none.
    Raises:
        DamagedSpillError: a spill is damaged.
        DamagedIndexError: the hash index is damaged.
    """
    rows = run.rows
    tokens, edges = run.tokens()
    on_bytes(tokens.size)
    cropped = first_piece_hashes(tokens, edges[1:], rows.hash, options.longest_piece)
    hashes = cropped if options.dedup == "cropped" else rows.hash
    if exclusion is not None:
        if exclusion.spreads:
            exclusion.look(rows, hashes, (tokens, edges) if exclusion.looks_at_tokens else None)
        exclusion.mark(rows, hashes, (tokens, edges))
    if earlier is not None:
        rows.status = mark_known(rows.status, hashes, rows.duplicate_of, earlier)
    if options.dedup != "none":
        rows.status, duplicate_of = mark_duplicates(rows.status, hashes, rows.ordinal)
        rows.duplicate_of = np.maximum(rows.duplicate_of, duplicate_of)
    deciding = split_hashes(cropped, rows.cluster)
    rows.split = assign_splits(rows, split_of(deciding, options.fractions))
    counts = np.bincount(rows.status, minlength=len(STATUS_CODES))
    copies = count_copies(cropped[cropped_copy_candidates(rows.status, rows.residues, options)])
    return Partition(
        rows=rows,
        tokens=tokens,
        begin=edges[:-1],
        counts=counts,
        residues=residues_by_status(rows.status, rows.residues),
        cropped_copies=copies,
    )


def assign_splits(rows: RecordRows, splits: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return the split of each row, int8[N]: index into SPLITS; -1 if the record was not kept.

    Args:
        splits: int8[N], split that each record has if it was kept (see `split_of`).
    """
    return np.where(rows.status == KEPT, splits, np.int8(-1))
