"""Read one partition's records from all spills (the map tasks' files), in bounded memory.

`spill_files` describes the format. An extent is the position of frames in a spill. A frame is a
record batch with its hash. The frames of one extent are called a part of the spill. At most
WINDOW_BYTES are read at a time; this amount is called a window. Steps:

1. Find the partition's extents in each spill. This reads 24 bytes of a spill that is grouped by
   partition, and the whole index of any other spill.
2. Read the parts of several spills together, up to a window in total.
3. Read a part that is larger than a window in several steps. Each step reads the complete frames
   that fit into a window.
4. Check each frame's hash, and yield its record batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from pipeline.build.spill.frames import (
    EXTENT,
    FRAME_HEADER,
    checked_extents,
    frame_size,
    last_extent,
    read_frames,
)
from pipeline.build.spill.spill_files import SPILL_SCHEMA, grouped_by_partition
from pipeline.storage.folder import Folder, Part
from schemas.errors import DamagedSpillError

WINDOW_BYTES = 16 << 20
"""Maximum bytes of spills that are read at a time. A single frame may be larger."""


@dataclass(frozen=True, slots=True)
class SpilledPartition:
    """Positions of a partition's records in the spills.

    parts: index of the spill and position in the file, for each part
    """

    work: Folder
    partition: int
    parts: tuple[tuple[int, Part], ...]
    schema: pa.Schema = SPILL_SCHEMA

    @property
    def bytes(self) -> int:
        """Total size of all parts in bytes."""
        return sum(_size(part) for _, part in self.parts)

    def batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the records in input order, each batch with the index of its spill.

        At most about WINDOW_BYTES are read ahead.

        Raises:
            DamagedSpillError: a spill is damaged.
            FileNotFoundError, ThdpackError: a spill is missing or cannot be read.
        """
        for window in self._windows():
            if _size(window[0][1]) > WINDOW_BYTES:
                yield from self._in_steps(*window[0])
                continue
            buffers = self.work.parts([part for _, part in window])
            for (spill, part), buffer in zip(window, buffers, strict=True):
                batches, read = read_frames(part.name, buffer, self.partition, self.schema)
                if read != _size(part):
                    raise DamagedSpillError(part.name)
                yield from ((spill, batch) for batch in batches)

    def _windows(self) -> Iterator[list[tuple[int, Part]]]:
        """Yield parts to read together. A part larger than a window is alone in its list."""
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

    def _in_steps(self, spill: int, part: Part) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Read a large part, as many complete frames at a time as a window holds."""
        at, end, step = part.begin, cast(int, part.end), WINDOW_BYTES
        while at < end:
            buffer = self.work.parts([Part(part.name, at, min(at + step, end))])[0]
            batches, read = read_frames(part.name, buffer, self.partition, self.schema)
            yield from ((spill, batch) for batch in batches)
            at += read
            if read:
                step = WINDOW_BYTES
            elif buffer.size < FRAME_HEADER or not buffer.size < frame_size(buffer, 0) <= end - at:
                raise DamagedSpillError(part.name)
            else:
                step = frame_size(buffer, 0)  # the frame is larger than a window


def find_partition(
    work: Folder,
    names: Sequence[str],
    partition: int,
    partitions: int,
    schema: pa.Schema = SPILL_SCHEMA,
) -> SpilledPartition:
    """Find the parts of spills that belong to a partition.

    Args:
        names: names of the spills, in input order.
        partitions: number of partitions in each spill.
        schema: schema of the spills.
    Raises:
        DamagedSpillError: a spill is damaged.
        FileNotFoundError, ThdpackError: a spill is missing or cannot be read.
    """
    find = _grouped_extents if grouped_by_partition(work, partitions) else _indexed_extents
    parts: list[tuple[int, Part]] = []
    found = zip(names, find(work, names, partition, partitions), strict=True)
    for spill, (name, extents) in enumerate(found):
        parts += [(spill, Part(name, begin, begin + size)) for begin, size in extents if size]
    return SpilledPartition(work, partition, tuple(parts), schema)


def _grouped_extents(
    work: Folder, names: Sequence[str], partition: int, partitions: int
) -> Iterator[list[tuple[int, int]]]:
    """Yield begin and size of the partition's frames in each spill.

    The spills are grouped by partition.
    """
    size = EXTENT.itemsize
    wanted = [Part(name, partition * size, (partition + 1) * size) for name in names]
    for name, buffer in zip(names, work.parts(wanted), strict=True):
        if buffer.size != size:
            raise DamagedSpillError(name)
        yield checked_extents(name, buffer, partition)


def _indexed_extents(
    work: Folder, names: Sequence[str], partition: int, partitions: int
) -> Iterator[list[tuple[int, int]]]:
    """Yield begin and size of the partition's frames in each spill.

    Each spill has an index at its end.
    """
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
        if any(first + count > begin for first, count in extents):  # frames overlap the index
            raise DamagedSpillError(name)
        yield extents


def _size(part: Part) -> int:
    return cast(int, part.end) - part.begin
