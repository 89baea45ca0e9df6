"""Frames and extents, the parts of work files (spills, rests and link files; see `spill_files`).

A frame is a record batch with its hash. An extent states where a group of frames is in the
file. It has 24 bytes: begin, size, and a check value.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from pipeline.storage.atomic_write import HashingWriter
from schemas.errors import DamagedSpillError
from schemas.splitmix import mix

EXTENT: Final = np.dtype([("begin", "<i8"), ("size", "<i8"), ("check", "<u8")])
_SIZE_BYTES: Final = 8
FRAME_HEADER: Final = _SIZE_BYTES + 16
"""Size of a frame's header in bytes. A header holds the size and the hash of the message (the
serialized record batch) that follows it."""
FRAME_BYTES: Final = 8 << 20
"""Approximate maximum size of a frame in bytes. A reader holds a whole frame in memory. Without
this limit, records with long ids could form a frame of 24 MiB or more."""


def write_frames(file: HashingWriter, batch: pa.RecordBatch, partition: int) -> int:
    """Write a batch in frames of about FRAME_BYTES; return the position after the last frame.

    For an empty batch, write nothing.
    """
    rows = max(1, batch.num_rows * FRAME_BYTES // max(batch.nbytes, FRAME_BYTES))
    for first in range(0, batch.num_rows, rows):
        part = batch.slice(first, rows)
        # malloc reuses this memory for the next frame: see pipeline.executors.worker_memory
        message = part.serialize(memory_pool=pa.system_memory_pool())
        file.write(
            message.size.to_bytes(_SIZE_BYTES, "little")
            + xxhash.xxh3_128_digest(message, seed=partition)
        )
        file.write(message)
    return file.tell()


def read_frames(
    name: str, buffer: pa.Buffer, partition: int, schema: pa.Schema
) -> tuple[list[pa.RecordBatch], int]:
    """Return the record batches of all complete frames in a buffer, and their total size in bytes.

    Raises:
        DamagedSpillError: a hash or a size is wrong, or a message is not a record batch of the
            schema.
    """
    batches, at = [], 0
    while at + FRAME_HEADER <= buffer.size and at + frame_size(buffer, at) <= buffer.size:
        end = at + frame_size(buffer, at)
        if end < at + FRAME_HEADER:
            raise DamagedSpillError(name)
        message = buffer.slice(at + FRAME_HEADER, end - at - FRAME_HEADER)
        expected = buffer.slice(at + _SIZE_BYTES, 16).to_pybytes()
        if xxhash.xxh3_128_digest(message, seed=partition) != expected:
            raise DamagedSpillError(name)
        batches.append(_decoded(name, message, schema))
        at = end
    return batches, at


def _decoded(name: str, message: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Return a message's record batch. Check the offsets and sizes that kernels rely on."""
    try:
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise DamagedSpillError(name) from error
    if any(column.null_count for column in batch.columns):
        raise DamagedSpillError(name)
    return batch


def frame_size(buffer: pa.Buffer, at: int) -> int:
    """Return the size in bytes, header included, of the frame that begins at `at`."""
    return FRAME_HEADER + int.from_bytes(
        buffer.slice(at, _SIZE_BYTES).to_pybytes(), "little", signed=True
    )


def extents_between(edges: NDArray[np.int64]) -> NDArray[np.void]:
    """Return the extents, EXTENT[N], of partitions that lie end to end in a file.

    edges: int64[N + 1], first byte of each partition, and the byte after the last one.
    """
    extents = np.empty(edges.size - 1, dtype=EXTENT)
    extents["begin"], extents["size"] = edges[:-1], np.diff(edges)
    extents["check"] = _check(extents, np.arange(extents.size, dtype=np.uint64))
    return extents


def _check(extents: NDArray[np.void], partitions: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return check values, uint64[N], of extents and their partitions. A flipped bit in an extent
    changes the check value."""
    check = mix(partitions + np.uint64(1))
    for name in ("begin", "size"):
        check = mix(check ^ extents[name].astype(np.uint64))
    return check


def write_extents(file: HashingWriter, extents: NDArray[np.void]) -> None:
    """Write a list of extents, and then one extent that holds the position of the list."""
    begin = file.tell()
    file.write(extents.tobytes())
    file.write(extents_between(np.array([begin, file.tell()])).tobytes())


def checked_extents(name: str, buffer: pa.Buffer, partition: int) -> list[tuple[int, int]]:
    """Return begin and size of each extent in a buffer. All extents belong to one partition.

    Raises:
        DamagedSpillError: a check value is wrong.
    """
    extents = np.frombuffer(buffer, dtype=EXTENT)
    expected = _check(extents, np.full(extents.size, partition, dtype=np.uint64))
    if (
        (extents["check"] != expected).any()
        or (extents["begin"] < 0).any()
        or (extents["size"] < 0).any()
    ):
        raise DamagedSpillError(name)
    return list(zip(extents["begin"].tolist(), extents["size"].tolist(), strict=True))


def last_extent(name: str, buffer: pa.Buffer) -> tuple[int, int]:
    """Return begin and size of the extent at a file's end.

    Raises:
        DamagedSpillError: the file is too short, or the check value is wrong.
    """
    if buffer.size < EXTENT.itemsize:
        raise DamagedSpillError(name)
    return checked_extents(name, buffer.slice(buffer.size - EXTENT.itemsize), 0)[0]
