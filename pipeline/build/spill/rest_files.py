"""Write and read rest files, or rests: a task's sequences that did not fill a bucket. A later task
packs these sequences.

A rest consists of frames (record batches with their hashes), followed by one extent: position and
size of all frames together. See `frames`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.build.spill.frames import (
    EXTENT,
    extents_between,
    last_extent,
    read_frames,
    write_frames,
)
from pipeline.build.task_results import WorkFile
from pipeline.storage.folder import Folder, Part
from schemas.errors import DamagedSpillError


def write_rest(work: Folder, name: str, table: pa.Table) -> WorkFile:
    """Write a rest; return its name, size and hash.

    Raises:
        BuildError: the file cannot be written.
    """
    with work.written(name, durable=False) as file:
        for batch in table.to_batches():
            write_frames(file, batch, 0)
        file.write(extents_between(np.array([0, file.tell()])).tobytes())
    return WorkFile(name=name, bytes=file.bytes, xxh3_128=file.xxh3_128)


def read_rests(work: Folder, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return the rows of several rests, one rest after the other.

    Raises:
        DamagedSpillError: a rest is damaged.
        FileNotFoundError, ThdpackError: a rest is missing or cannot be read.
    """
    batches: list[pa.RecordBatch] = []
    for name, buffer in zip(names, work.parts([Part(name) for name in names]), strict=True):
        begin, size = last_extent(name, buffer)
        if begin != 0 or size != buffer.size - EXTENT.itemsize:
            raise DamagedSpillError(name)
        batches += read_frames(name, buffer.slice(0, size), 0, schema)[0]
    return pa.Table.from_batches(batches, schema=schema)
