"""Read a partition's records from the spills: in input order, and in runs that fit into memory.

A spill is the file of a map task, and a run is a group of consecutive records. This module checks
the values that later steps and kernels rely on. Sizes must agree with packed tokens, status codes
must be known, and every record's hash must match its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges, one_chunk
from pipeline.build.arrays.sequence_hashes import HASH, sequence_hashes
from pipeline.build.clusters.link_files import RecordClusters
from pipeline.build.map_stage.map_results import load_map_outcome
from pipeline.build.reduce_stage.record_rows import RecordRows
from pipeline.build.spill.spill_files import SPILL_SCHEMA
from pipeline.build.spill.spill_kernel import unpack
from pipeline.build.spill.spilled_partition import SpilledPartition, find_partition
from pipeline.build.tasks import PartitionTask
from pipeline.reader.arrow_columns import numbers
from schemas.errors import DamagedSpillError
from schemas.records import Status

WHOLE_BYTES: Final = 64 << 20
"""A partition is read as one run if its part of the spills has at most this many bytes. Partitions
of the planned size (`build_plan.PARTITION_BYTES`) are normally smaller."""
RUN_BYTES: Final = 16 << 20
"""Approximate size in bytes of one run of a larger partition, as stored in the spills."""
_STATUSES: Final = len(Status)


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive records of a partition, in input order.

    rows: the records, without their tokens
    batches: record batches that hold the records
    names: name of the spill that each batch was read from
    """

    rows: RecordRows
    batches: Sequence[pa.RecordBatch]
    names: Sequence[str]

    def tokens(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Unpack the residue tokens of all records, and check them against the records' hashes.

        Returns:
            uint8[T], tokens end to end; int64[N + 1], edges of the records.
        Raises:
            DamagedSpillError: the hash of a record differs.
        """
        edges = np.concatenate(([0], np.cumsum(self.rows.residues)))
        tokens = np.empty(int(edges[-1]), dtype=np.uint8)
        first = 0
        for batch in self.batches:
            last = first + batch.num_rows
            unpack(
                bytes_and_edges(batch.column("packed"))[0],
                self.rows.residues[first:last],
                tokens[edges[first] : edges[last]],
            )
            first = last
        hashes = sequence_hashes(tokens, edges[1:])
        if not np.array_equal(hashes.view(np.uint64), self.rows.hash.view(np.uint64)):
            wrong = int(np.flatnonzero(hashes != self.rows.hash)[0])
            ends = np.cumsum([batch.num_rows for batch in self.batches])
            raise DamagedSpillError(self.names[int(np.searchsorted(ends, wrong, side="right"))])
        return tokens, edges


class SpilledRecords:
    """All records of a task's partition."""

    def __init__(self, task: PartitionTask, clusters: RecordClusters | None = None) -> None:
        """Find the partition's records in each spill.

        Args:
            clusters: clusters of the records; None without a table of clusters, and in a link task,
                which has yet to find the clusters.
        Raises:
            DamagedSpillError: a spill is damaged.
        """
        self._spills = load_map_outcome(task.work, task.job.mapped).spills
        self._found: SpilledPartition = find_partition(
            task.work, [spill.name for spill in self._spills], task.partition, task.partitions
        )
        self.large: Final = self._found.bytes > WHOLE_BYTES
        """True if the partition is read in more than one run."""
        self._clusters = clusters

    def runs(self) -> Iterator[RecordRun]:
        """Yield the records in input order; every call reads the spills again.

        Raises:
            DamagedSpillError: a spill is damaged.
        """
        batches: list[tuple[int, pa.RecordBatch]] = []
        size = first = 0
        for spill, batch in self._found.batches():
            self._check(spill, batch)
            batches.append((spill, batch))
            size += batch.nbytes
            if self.large and size >= RUN_BYTES:
                yield self._run(batches, first)
                first += sum(batch.num_rows for _, batch in batches)
                batches, size = [], 0
        if batches or not self.large:
            yield self._run(batches, first)

    def _check(self, spill: int, batch: pa.RecordBatch) -> None:
        """Check the sizes and status codes that kernels rely on.

        Raises:
            DamagedSpillError: sizes do not agree with tokens, or a status code is unknown.
        """
        sizes, status = (
            numbers(batch.column("residues"), np.int64),
            numbers(batch.column("status"), np.int8),
        )
        edges = bytes_and_edges(batch.column("packed"))[1]
        fits = bool((sizes >= 0).all()) and np.array_equal(np.diff(edges), (5 * sizes + 7) // 8)
        if not fits or (status < 0).any() or (status >= _STATUSES).any():
            raise DamagedSpillError(self._spills[spill].name)

    def _run(self, found: Sequence[tuple[int, pa.RecordBatch]], first: int) -> RecordRun:
        """Return a run.

        Args:
            found: record batches, each with the index of its spill.
            first: number of the partition's records in earlier runs.
        """
        batches = [batch for _, batch in found]
        table = pa.Table.from_batches(batches, schema=SPILL_SCHEMA)
        spills = [(self._spills[spill], batch) for spill, batch in found]
        rows = RecordRows(
            ordinal=_joined(
                [
                    numbers(batch.column("number"), np.int64) + spill.first_ordinal
                    for spill, batch in spills
                ],
                np.int64,
            ),
            id=one_chunk(table.column("id")),
            stated=one_chunk(table.column("stated")),
            source=_joined(
                [np.full(batch.num_rows, spill.source, dtype=np.int32) for spill, batch in spills],
                np.int32,
            ),
            offset=number_column(table, "offset", np.int64),
            residues=number_column(table, "residues", np.int64),
            unknown=number_column(table, "unknown", np.int64),
            hash=hash_column(table.column("hash")),
            status=number_column(table, "status", np.int8),
        )
        if self._clusters is not None:
            rows.cluster, rows.weight = self._clusters.of(first, len(rows))
        return RecordRun(rows, batches, [spill.name for spill, _ in spills])


def _joined(parts: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype=dtype), *parts])


def number_column(table: pa.Table, name: str, dtype: type[np.generic]) -> NDArray[Any]:
    """Return a column of numbers, dtype[N]."""
    return numbers(one_chunk(table.column(name)), dtype)


def hash_column(column: pa.ChunkedArray) -> NDArray[np.void]:
    """Return a binary[16] column as HASH[N]."""
    array = one_chunk(column)
    if len(array) == 0:
        return np.empty(0, dtype=HASH)
    return np.frombuffer(array.buffers()[1], dtype=HASH)[array.offset : array.offset + len(array)]
