"""Frames: record batches in a file, each with its hash, and extents, which say where frames lie; the parts of spills and rests (see `spill_files`)."""

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
"""Bytes of a frame before its message."""
FRAME_BYTES: Final = 8 << 20
"""A block of records with long ids, all of one partition, would be a frame of 24 MiB and more, which is read whole."""


def write_frames(file: HashingWriter, batch: pa.RecordBatch, partition: int) -> int:
    """Write a batch, unless it is empty, in frames of about FRAME_BYTES at most; where the file ends now."""
    rows = max(1, batch.num_rows * FRAME_BYTES // max(batch.nbytes, FRAME_BYTES))
    for first in range(0, batch.num_rows, rows):
        part = batch.slice(first, rows)
        message = part.serialize(
            memory_pool=pa.system_memory_pool()
        )  # of malloc, which keeps what was freed: see pipeline.executors.worker_memory
        file.write(
            message.size.to_bytes(_SIZE_BYTES, "little")
            + xxhash.xxh3_128_digest(message, seed=partition)
        )
        file.write(message)
    return file.tell()


def read_frames(
    name: str, buffer: pa.Buffer, partition: int, schema: pa.Schema
) -> tuple[list[pa.RecordBatch], int]:
    """The records of all whole frames in a buffer, and how many bytes these take."""
    batches, at = [], 0
    while at + FRAME_HEADER <= buffer.size and at + frame_size(buffer, at) <= buffer.size:
        end = at + frame_size(buffer, at)
        if end < at + FRAME_HEADER:
            raise DamagedSpillError(name)
        message = buffer.slice(at + FRAME_HEADER, end - at - FRAME_HEADER)
        if (
            xxhash.xxh3_128_digest(message, seed=partition)
            != buffer.slice(at + _SIZE_BYTES, 16).to_pybytes()
        ):
            raise DamagedSpillError(name)
        batches.append(_decoded(name, message, schema))
        at = end
    return batches, at


def _decoded(name: str, message: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """A record batch, of which kernels may believe offsets and sizes."""
    try:
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise DamagedSpillError(name) from error
    if any(column.null_count for column in batch.columns):
        raise DamagedSpillError(name)
    return batch


def frame_size(buffer: pa.Buffer, at: int) -> int:
    """Of the frame that begins at `at`, header included."""
    return FRAME_HEADER + int.from_bytes(
        buffer.slice(at, _SIZE_BYTES).to_pybytes(), "little", signed=True
    )


def extents_between(edges: NDArray[np.int64]) -> NDArray[np.void]:
    """The extents of runs that lie end to end, one for each partition; edges: int64[N + 1]."""
    extents = np.empty(edges.size - 1, dtype=EXTENT)
    extents["begin"], extents["size"] = edges[:-1], np.diff(edges)
    extents["check"] = _check(extents, np.arange(extents.size, dtype=np.uint64))
    return extents


def _check(extents: NDArray[np.void], partitions: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """What a extent has to say of itself and its partition, uint64[N]: any changed bit of it changes this."""
    check = mix(partitions + np.uint64(1))
    for name in ("begin", "size"):
        check = mix(check ^ extents[name].astype(np.uint64))
    return check


def write_extents(file: HashingWriter, extents: NDArray[np.void]) -> None:
    """Write the extents of all frames, and last the extent of what was written."""
    begin = file.tell()
    file.write(extents.tobytes())
    file.write(extents_between(np.array([begin, file.tell()])).tobytes())


def checked_extents(name: str, buffer: pa.Buffer, partition: int) -> list[tuple[int, int]]:
    """Extents of a partition, as they were written: begin and size of each."""
    extents = np.frombuffer(buffer, dtype=EXTENT)
    if (
        (
            extents["check"] != _check(extents, np.full(extents.size, partition, dtype=np.uint64))
        ).any()
        or (extents["begin"] < 0).any()
        or (extents["size"] < 0).any()
    ):
        raise DamagedSpillError(name)
    return list(zip(extents["begin"].tolist(), extents["size"].tolist(), strict=True))


def last_extent(name: str, buffer: pa.Buffer) -> tuple[int, int]:
    """What the extent at a file's end says."""
    if buffer.size < EXTENT.itemsize:
        raise DamagedSpillError(name)
    return checked_extents(name, buffer.slice(buffer.size - EXTENT.itemsize), 0)[0]
