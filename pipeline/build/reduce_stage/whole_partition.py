"""A partition of a build in the memory of its reduce task: what is packed, and what is written of its records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import first_piece_hashes, in_valid
from pipeline.build.options import DatasetOptions
from pipeline.build.reduce_stage.deduplicate import (
    KEPT,
    count_copies,
    cropped_copy_candidates,
    mark_duplicates,
)
from pipeline.build.reduce_stage.spilled_records import RecordRun
from pipeline.build.reduce_stage.write_records import RecordRows
from pipeline.build.tasks import OnBytes
from schemas.records import STATUS_CODES


@dataclass(slots=True, kw_only=True)
class Partition:
    """Records whose sequences are packed together.

    rows: at least those that are kept, their status and split known.
    tokens: uint8[T], and begin: int64[len(rows)], where the residues of each row start in it.
    counts: int64[statuses], records of each status; residues_in: of all records.
    cropped_copies: kept records that are the same as an earlier one once they are truncated.
    """

    rows: RecordRows
    tokens: NDArray[np.uint8]
    begin: NDArray[np.int64]
    counts: NDArray[np.int64]
    residues_in: int
    cropped_copies: int = 0

    def rows_to_write(
        self, to_write: NDArray[np.bool_], left_over: NDArray[np.int64]
    ) -> Iterator[RecordRows]:
        """What records/ says of the partition, by ordinal.

        Args:
            to_write: bool[len(rows)], rows that belong there.
            left_over: int64[…], rows that `take` will be asked for when all this has been taken.
        """
        yield self.rows.take(np.flatnonzero(to_write)).sorted_by_ordinal()

    def take(self, row: NDArray[np.int64]) -> RecordRows:
        """The rows at `row`, int64[M]."""
        return self.rows.take(row)


def whole_partition(run: RecordRun, options: DatasetOptions, on_bytes: OnBytes) -> Partition:
    """A partition that is one run.

    Raises:
        DamagedSpillError: a spill is not what was written.
    """
    rows = run.rows
    tokens, edges = run.tokens()
    on_bytes(tokens.size)
    cropped = first_piece_hashes(tokens, edges[1:], rows.hash, options.longest_piece)
    if options.dedup != "none":
        rows.status, rows.duplicate_of = mark_duplicates(
            rows.status, cropped if options.dedup == "cropped" else rows.hash, rows.ordinal
        )
    rows.split = assign_splits(rows, in_valid(cropped, options.valid_fraction))
    counts = np.bincount(rows.status, minlength=len(STATUS_CODES))
    copies = count_copies(cropped[cropped_copy_candidates(rows.status, rows.residues, options)])
    return Partition(
        rows=rows,
        tokens=tokens,
        begin=edges[:-1],
        counts=counts,
        residues_in=int(edges[-1]),
        cropped_copies=copies,
    )


def assign_splits(rows: RecordRows, valid: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Index into SPLITS of each row, int8[N], -1 of those that are not kept; valid: whether its sequences are held out."""
    return np.where(rows.status == KEPT, valid.astype(np.int8), -1).astype(np.int8)
