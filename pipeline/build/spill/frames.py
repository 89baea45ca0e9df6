"""Frames: record batches in a file, each with its hash, and places, which say where frames lie; the parts of spills and rests (see `spill_files`)."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from pipeline.storage.atomic_write import HashingWriter
from schemas.errors import DamagedSpillError
from schemas.splitmix import mix

PLACE: Final = np.dtype([("begin", "<i8"), ("size", "<i8"), ("check", "<u8")])
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


def batches_of(
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


def places_of_runs(edges: NDArray[np.int64]) -> NDArray[np.void]:
    """The places of runs that lie end to end, one for each partition; edges: int64[N + 1]."""
    places = np.empty(edges.size - 1, dtype=PLACE)
    places["begin"], places["size"] = edges[:-1], np.diff(edges)
    places["check"] = _check(places, np.arange(places.size, dtype=np.uint64))
    return places


def _check(places: NDArray[np.void], partitions: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """What a place has to say of itself and its partition, uint64[N]: any changed bit of it changes this."""
    check = mix(partitions + np.uint64(1))
    for name in ("begin", "size"):
        check = mix(check ^ places[name].astype(np.uint64))
    return check


def write_places(file: HashingWriter, places: NDArray[np.void]) -> None:
    """Write the places of all frames, and last the place of what was written."""
    begin = file.tell()
    file.write(places.tobytes())
    file.write(places_of_runs(np.array([begin, file.tell()])).tobytes())


def checked_places(name: str, buffer: pa.Buffer, partition: int) -> list[tuple[int, int]]:
    """Places of a partition, as they were written: begin and size of each."""
    places = np.frombuffer(buffer, dtype=PLACE)
    if (
        (places["check"] != _check(places, np.full(places.size, partition, dtype=np.uint64))).any()
        or (places["begin"] < 0).any()
        or (places["size"] < 0).any()
    ):
        raise DamagedSpillError(name)
    return list(zip(places["begin"].tolist(), places["size"].tolist(), strict=True))


def last_place(name: str, buffer: pa.Buffer) -> tuple[int, int]:
    """What the place at a file's end says."""
    if buffer.size < PLACE.itemsize:
        raise DamagedSpillError(name)
    return checked_places(name, buffer.slice(buffer.size - PLACE.itemsize), 0)[0]
