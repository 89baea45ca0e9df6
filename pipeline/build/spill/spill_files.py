"""Spills: a map task's records, sorted into partitions, in one file; and rests, what reduce tasks leave for each other.

Both consist of frames: eight bytes of size, the xxh3_128 of the message, then the message, an Arrow record batch. The hash is seeded with the
partition, so that a frame is believed only where it belongs. Where frames lie is said by extents: begin, size, and a check of both.

On a local disk a spill holds one frame for each block of records and partition, as they come, then the extent of each, then the extent of
these extents. On an object store, where every read costs a request, and for many partitions, where an index of all frames would be larger than what
is wanted of it, what belongs to a partition lies together: the extents of all partitions, then their frames. A partition of a spill is two
requests there, one of 24 bytes. A rest is frames, then their extent.

Whatever is read is checked: a bit that another program, a disk or a cable changed never reaches a dataset.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.spill.frames import (
    EXTENT,
    FRAME_HEADER,
    checked_extents,
    extents_between,
    frame_size,
    last_extent,
    read_frames,
    write_extents,
    write_frames,
)
from pipeline.build.task_results import WorkFile
from pipeline.storage.atomic_write import HashingWriter, written_atomically
from pipeline.storage.folder import Folder, Part
from schemas.errors import DamagedSpillError

SPILL_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),  # of the record within its task
        ("id", pa.large_binary()),
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
WINDOW_BYTES = 16 << 20
"""Of spills, that are read at once; a larger frame is read whole."""
_JOINED_BYTES: Final = 16 << 20
"""A partition's frames of one spill that come to no more are written as one."""


@dataclass(slots=True)
class SpillWriter:
    """Takes the records of a spill in order; `written` is set once it is closed."""

    file: HashingWriter
    extents: list[NDArray[np.void]] = field(default_factory=list)
    written: WorkFile | None = None

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write a block of records: one batch for each partition, in their order."""
        edges = [
            self.file.tell(),
            *(write_frames(self.file, batch, partition) for partition, batch in enumerate(batches)),
        ]
        self.extents.append(extents_between(np.array(edges, dtype=np.int64)))


@contextmanager
def create_spill(work: Folder, name: str, partitions: int) -> Iterator[SpillWriter]:
    """Write a spill; `written` names it once the context has ended.

    Raises:
        BuildError: it cannot be written.
    """
    if not _grouped_by_partition(work, partitions):
        with work.written(name, durable=False) as file:
            writer = SpillWriter(file)
            yield writer
            write_extents(file, np.concatenate([np.empty(0, dtype=EXTENT), *writer.extents]))
    else:
        with tempfile.TemporaryDirectory(
            prefix="thdpack-spill-", dir=work.where() if work.local else None
        ) as scratch:
            blocks = Path(scratch) / name
            with written_atomically(blocks, scratch=Path(scratch), durable=False) as local:
                writer = SpillWriter(local)
                yield writer
            with work.written(name, durable=False) as file:
                _regroup(blocks, file, writer.extents, partitions)
    writer.written = WorkFile(name=name, bytes=file.bytes, xxh3_128=file.xxh3_128)


def write_rest(work: Folder, name: str, table: pa.Table) -> WorkFile:
    """Write a rest.

    Raises:
        BuildError: it cannot be written.
    """
    with work.written(name, durable=False) as file:
        for batch in table.to_batches():
            write_frames(file, batch, 0)
        file.write(extents_between(np.array([0, file.tell()])).tobytes())
    return WorkFile(name=name, bytes=file.bytes, xxh3_128=file.xxh3_128)


def read_rests(work: Folder, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """What several rests hold, one after the other.

    Raises:
        DamagedSpillError: one is not what was written; FileNotFoundError, ThdpackError: one is not there or cannot be read.
    """
    batches: list[pa.RecordBatch] = []
    for name, buffer in zip(names, work.parts([Part(name) for name in names]), strict=True):
        begin, size = last_extent(name, buffer)
        if begin != 0 or size != buffer.size - EXTENT.itemsize:
            raise DamagedSpillError(name)
        batches += read_frames(name, buffer.slice(0, size), 0, schema)[0]
    return pa.Table.from_batches(batches, schema=schema)


@dataclass(frozen=True, slots=True)
class SpilledPartition:
    """Where the records of a partition lie. parts: index of the spill, and its part."""

    work: Folder
    partition: int
    parts: tuple[tuple[int, Part], ...]

    @property
    def bytes(self) -> int:
        """Of all parts."""
        return sum(_size(part) for _, part in self.parts)

    def batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The records in input order, with the index of their spill; no more than about WINDOW_BYTES are read ahead.

        Raises:
            DamagedSpillError: a spill is not what was written; FileNotFoundError, ThdpackError: it is not there or cannot be read.
        """
        for window in self._windows():
            if _size(window[0][1]) > WINDOW_BYTES:
                yield from self._piecewise(*window[0])
                continue
            for (spill, part), buffer in zip(
                window, self.work.parts([part for _, part in window]), strict=True
            ):
                batches, read = read_frames(part.name, buffer, self.partition, SPILL_SCHEMA)
                if read != _size(part):
                    raise DamagedSpillError(part.name)
                yield from ((spill, batch) for batch in batches)

    def _windows(self) -> Iterator[list[tuple[int, Part]]]:
        """Parts that are read together; a part larger than a window is alone."""
        window: list[tuple[int, Part]] = []
        size = 0
        for entry in self.parts:
            if window and size + _size(entry[1]) > WINDOW_BYTES:
                yield window
                window, size = [], 0
            window.append(entry)
            size += _size(entry[1])
        if window:
            yield window

    def _piecewise(self, spill: int, part: Part) -> Iterator[tuple[int, pa.RecordBatch]]:
        """A large part, as many whole frames at a time as a window holds."""
        at, end, wanted = part.begin, cast(int, part.end), WINDOW_BYTES
        while at < end:
            buffer = self.work.parts([Part(part.name, at, min(at + wanted, end))])[0]
            batches, read = read_frames(part.name, buffer, self.partition, SPILL_SCHEMA)
            yield from ((spill, batch) for batch in batches)
            at += read
            if read:
                wanted = WINDOW_BYTES
            elif buffer.size < FRAME_HEADER or not buffer.size < frame_size(buffer, 0) <= end - at:
                raise DamagedSpillError(part.name)
            else:
                wanted = frame_size(buffer, 0)  # larger than a window


def spilled_partition(
    work: Folder, names: Sequence[str], partition: int, partitions: int
) -> SpilledPartition:
    """Find what each spill holds of a partition.

    Raises:
        DamagedSpillError: a spill is not what was written; FileNotFoundError, ThdpackError: it is not there or cannot be read.
    """
    parts: list[tuple[int, Part]] = []
    for spill, (name, extents) in enumerate(
        zip(names, _extents_of_partition(work, names, partition, partitions), strict=True)
    ):
        parts += [(spill, Part(name, begin, begin + size)) for begin, size in extents if size]
    return SpilledPartition(work, partition, tuple(parts))


def _extents_of_partition(
    work: Folder, names: Sequence[str], partition: int, partitions: int
) -> Iterator[list[tuple[int, int]]]:
    """For each spill, begin and size of each run of frames of a partition."""
    if _grouped_by_partition(work, partitions):
        size = EXTENT.itemsize
        for name, buffer in zip(
            names,
            work.parts([Part(name, partition * size, (partition + 1) * size) for name in names]),
            strict=True,
        ):
            if buffer.size != size:
                raise DamagedSpillError(name)
            yield checked_extents(name, buffer, partition)
        return
    for name, buffer in zip(names, work.parts([Part(name) for name in names]), strict=True):
        begin, size = last_extent(name, buffer)
        if (
            begin < 0
            or begin + size != buffer.size - EXTENT.itemsize
            or size % (partitions * EXTENT.itemsize)
        ):
            raise DamagedSpillError(name)
        index = np.frombuffer(buffer.slice(begin, size), dtype=EXTENT)[partition::partitions]
        extents = checked_extents(name, pa.py_buffer(index.tobytes()), partition)
        if any(
            first + count > begin for first, count in extents
        ):  # frames lie before their extents
            raise DamagedSpillError(name)
        yield extents


def _grouped_by_partition(work: Folder, partitions: int) -> bool:
    """Whether what belongs to a partition lies together."""
    return not work.local or partitions >= GROUPED_FROM


def _regroup(
    blocks: Path, file: HashingWriter, extents: list[NDArray[np.void]], partitions: int
) -> None:
    """What lies block by block, written partition by partition."""
    with (
        pa.memory_map(str(blocks)) as mapped,
        tempfile.TemporaryFile(prefix="thdpack-spill-", dir=blocks.parent) as body,
    ):
        buffer = mapped.read_buffer()
        edges = np.zeros(partitions + 1, dtype=np.int64)
        writer = HashingWriter(cast(Any, body))
        for partition in range(partitions):
            for batch in _joined(blocks.name, buffer, extents, partition):
                write_frames(writer, batch, partition)
            edges[partition + 1] = writer.tell()
        file.write(extents_between(edges + partitions * EXTENT.itemsize).tobytes())
        body.seek(0)
        while piece := body.read(1 << 20):
            file.write(piece)


def _joined(
    name: str, buffer: pa.Buffer, extents: list[NDArray[np.void]], partition: int
) -> list[pa.RecordBatch]:
    """A partition's records of all blocks, in one batch unless that is large."""
    mine = [block[partition] for block in extents if block[partition]["size"]]
    batches: list[pa.RecordBatch] = []
    for extent in mine:
        batches += read_frames(
            name, buffer.slice(int(extent["begin"]), int(extent["size"])), partition, SPILL_SCHEMA
        )[0]
    if len(batches) < 2 or sum(int(extent["size"]) for extent in mine) > _JOINED_BYTES:
        return batches
    return cast(
        "list[pa.RecordBatch]", pa.Table.from_batches(batches).combine_chunks().to_batches()
    )


def _size(part: Part) -> int:
    return cast(int, part.end) - part.begin
