"""Spills: a map task's records, sorted into partitions, in one file.

On a local disk a spill is an Arrow IPC file. Each block of records gives `partitions` record batches, one for each partition in
order, so batch i belongs to partition i % partitions. On an object store, where every read costs a request, and for many partitions, where
an index of all batches would be larger than what is wanted of it, what belongs to a
partition lies together: `partitions` + 1 offsets (int64, little-endian), then a record batch for each partition that has records.
A partition of a spill is two requests there, one of sixteen bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.folders import Folder, Part
from pipeline.writing import HashingWriter, written_atomically

SPILL_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),  # of the record within its task
        ("id", pa.binary()),
        ("offset", pa.int64()),
        ("unknown", pa.int64()),
        ("hash", pa.binary(16)),
        ("status", pa.int8()),
        ("residues", pa.int64()),
        ("packed", pa.large_binary()),  # tokens at 5 bits each
    ]
)
GROUPED_FROM = 512
"""Partitions (30 GB of FASTA) from which a spill on a local disk, too, is written partition by partition."""
_OFFSET = np.dtype("<i8")


@dataclass(slots=True)
class SpillWriter:
    """Takes the batches of a spill in order; `entry` is there once it is closed."""

    batches: pa.ipc.RecordBatchWriter
    entry: list[str | int]


@contextmanager
def spill_written(work: Folder, name: str, partitions: int) -> Iterator[SpillWriter]:
    """Write a spill; its entry is [name, bytes, xxh3_128].

    Raises:
        BuildError: it cannot be written.
    """
    if not _grouped(work, partitions):
        with work.written(name, durable=False) as file, pa.ipc.new_file(file, SPILL_SCHEMA) as batches:
            writer = SpillWriter(batches, [])
            yield writer
    else:
        with tempfile.TemporaryDirectory(prefix="thdpack-spill-", dir=work.where() if work.local else None) as scratch:
            blocks = Path(scratch) / name
            with written_atomically(blocks, scratch=Path(scratch), durable=False) as local, pa.ipc.new_file(local, SPILL_SCHEMA) as batches:
                writer = SpillWriter(batches, [])
                yield writer
            with work.written(name, durable=False) as file:
                _regroup(blocks, file, partitions)
    writer.entry = [name, file.bytes, file.xxh3_128]


def _grouped(work: Folder, partitions: int) -> bool:
    """Whether what belongs to a partition lies together."""
    return not work.local or partitions >= GROUPED_FROM


def _regroup(blocks: Path, file: HashingWriter, partitions: int) -> None:
    """What lies block by block, written partition by partition."""
    with pa.memory_map(str(blocks)) as mapped:
        reader = pa.ipc.open_file(mapped)
        with tempfile.TemporaryFile(prefix="thdpack-spill-", dir=blocks.parent) as body:
            offsets = np.zeros(partitions + 1, dtype=_OFFSET)
            for partition in range(partitions):
                table = _of_partition(reader, partition, partitions)
                if table.num_rows:
                    body.write(table.combine_chunks().to_batches()[0].serialize())
                offsets[partition + 1] = body.tell()
            file.write((offsets + offsets.nbytes).tobytes())
            body.seek(0)
            while piece := body.read(1 << 20):
                file.write(piece)


def _of_partition(reader: pa.ipc.RecordBatchFileReader, partition: int, partitions: int) -> pa.Table:
    batches = [reader.get_batch(i) for i in range(partition, reader.num_record_batches, partitions)]
    return pa.Table.from_batches(batches, schema=reader.schema)


def read_partition(work: Folder, names: Sequence[str], partition: int, partitions: int) -> list[pa.Table]:
    """What each spill holds of a partition.

    Raises:
        ThdpackError: a spill is not there or cannot be read.
    """
    if not _grouped(work, partitions):
        tables = []
        for buffer in work.parts([Part(name) for name in names]):
            tables.append(_of_partition(pa.ipc.open_file(buffer), partition, partitions))
        return tables
    size = _OFFSET.itemsize
    edges = work.parts([Part(name, partition * size, (partition + 2) * size) for name in names])
    wanted = [Part(name, *np.frombuffer(edge, dtype=_OFFSET).tolist()) for name, edge in zip(names, edges, strict=True)]
    return [_table(buffer) for buffer in work.parts(wanted)]


def _table(buffer: pa.Buffer) -> pa.Table:
    return pa.Table.from_batches([pa.ipc.read_record_batch(buffer, SPILL_SCHEMA)] if buffer.size else [], schema=SPILL_SCHEMA)
