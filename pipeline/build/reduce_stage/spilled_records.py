"""The records of a partition as the map stage left them: runs of records in input order, each small enough for memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges, one_chunk
from pipeline.build.arrays.sequence_hashes import HASH, sequence_hashes
from pipeline.build.map_stage.map_results import load_map_outcome
from pipeline.build.reduce_stage.write_records import RecordRows
from pipeline.build.spill.spill_files import SPILL_SCHEMA, SpilledPartition, spilled_partition
from pipeline.build.spill.spill_kernel import unpack
from pipeline.build.tasks import ReduceTask
from pipeline.reader.arrow_columns import numbers
from schemas.errors import DamagedSpillError
from schemas.records import Status

WHOLE_BYTES: Final = 64 << 20
"""A partition of which spills hold no more is one run: about 1.5 of what it has by plan."""
RUN_BYTES: Final = 16 << 20
"""About how much of a larger partition's spills is one run."""
_STATUSES: Final = len(Status)


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Records of a partition, one after the other in input order.

    batches: what the spills called `names` say of them.
    """

    rows: RecordRows
    batches: Sequence[pa.RecordBatch]
    names: Sequence[str]

    def tokens(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The residue tokens of all records end to end, uint8[T], and int64[N + 1] edges; each record has the hash that it had in the input.

        Raises:
            DamagedSpillError: a hash is not that of the tokens.
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
    """All records of a reduce task's partition."""

    def __init__(self, task: ReduceTask) -> None:
        """
        Raises:
            DamagedSpillError: a spill is not what was written.
        """
        self._spills = load_map_outcome(task.work, task.job.mapped).spills
        self._found: SpilledPartition = spilled_partition(
            task.work, [spill.name for spill in self._spills], task.partition, task.partitions
        )

    @property
    def large(self) -> bool:
        """Whether there is more than one run."""
        return self._found.bytes > WHOLE_BYTES

    def runs(self) -> Iterator[RecordRun]:
        """The records in input order; each time they are asked for, they are read.

        Raises:
            DamagedSpillError: a spill is not what was written.
        """
        batches: list[tuple[int, pa.RecordBatch]] = []
        size = 0
        for spill, batch in self._found.batches():
            self._check(spill, batch)
            batches.append((spill, batch))
            size += batch.nbytes
            if self.large and size >= RUN_BYTES:
                yield self._run(batches)
                batches, size = [], 0
        if batches or not self.large:
            yield self._run(batches)

    def _check(self, spill: int, batch: pa.RecordBatch) -> None:
        """Refuse what kernels must not be given.

        Raises:
            DamagedSpillError: sizes and tokens do not agree, or there is no such status.
        """
        sizes, status = (
            numbers(batch.column("residues"), np.int64),
            numbers(batch.column("status"), np.int8),
        )
        edges = bytes_and_edges(batch.column("packed"))[1]
        fits = bool((sizes >= 0).all()) and np.array_equal(np.diff(edges), (5 * sizes + 7) // 8)
        if not fits or (status < 0).any() or (status >= _STATUSES).any():
            raise DamagedSpillError(self._spills[spill].name)

    def _run(self, found: Sequence[tuple[int, pa.RecordBatch]]) -> RecordRun:
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
        return RecordRun(rows, batches, [spill.name for spill, _ in spills])


def _joined(parts: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype=dtype), *parts])


def number_column(table: pa.Table, name: str, dtype: type[np.generic]) -> NDArray[Any]:
    """A column of numbers."""
    return numbers(one_chunk(table.column(name)), dtype)


def hash_column(column: pa.ChunkedArray) -> NDArray[np.void]:
    """A binary[16] column as HASH[N]."""
    array = one_chunk(column)
    if len(array) == 0:
        return np.empty(0, dtype=HASH)
    return np.frombuffer(array.buffers()[1], dtype=HASH)[array.offset : array.offset + len(array)]
