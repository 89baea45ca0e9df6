"""Spill files: a map task's records, sorted into partitions, in one file of the work folder.

The draw stage writes rows of another schema in the same format.

Parts of a spill (see `frames`):

- A frame holds an Arrow record batch: eight bytes of size, the xxh3_128 of the message, and the
  message. The hash is seeded with the partition's number, so that a frame is accepted only as part
  of its own partition.
- An extent says where frames are in the file. It has 24 bytes: begin, size, and a check value.

A map task writes its records block by block. A block is a group of records parsed together.

Layouts:

- By block: used on a local disk with fewer than GROUPED_FROM partitions. The file begins with the
  frames of the first block, then those of the second block, and so on. The frames of a block are in
  the order of partitions. The index follows: one extent for each block and partition. The last
  extent says where the index is.
- Grouped by partition: used in all other cases. The file begins with one extent for each partition.
  The frames of the first partition follow, then those of the second, and so on. A reader of a
  partition sends two requests: one for the extent (24 bytes), and one for the frames. An index of
  all frames would need more requests, which are slow on an object store. With many partitions, an
  index would also be larger than a partition's frames.

Steps of writing a grouped spill:

1. Write the spill by block, to a temporary file on the local disk.
2. For each partition, collect the frames of all blocks, and join them if they are small. Append the
   result to a second temporary file.
3. Write the extents of all partitions, then copy the second file.

Readers check all bytes. Therefore damage by a disk, a network or another program never reaches a
dataset.
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
    extents_between,
    read_frames,
    write_extents,
    write_frames,
)
from pipeline.build.task_results import WorkFile
from pipeline.storage.atomic_write import HashingWriter, written_atomically
from pipeline.storage.folder import Folder

SPILL_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),  # index of the record within its task
        ("id", pa.large_binary()),
        ("stated", pa.large_binary()),  # values that the header states: see pack_headers
        ("offset", pa.int64()),
        ("unknown", pa.int64()),
        ("hash", pa.binary(16)),
        ("status", pa.int8()),
        ("residues", pa.int64()),
        ("packed", pa.large_binary()),  # tokens at 5 bits each
    ]
)
GROUPED_FROM = 512
"""Minimum number of partitions for grouped spills on a local disk. 30 GB of FASTA have 512
partitions."""
_JOINED_BYTES: Final = 16 << 20
"""Maximum total size in bytes of a partition's frames that are joined into one batch."""


@dataclass(slots=True)
class SpillWriter:
    """Writes the records of a spill block by block. `written` is set when the spill is closed.

    extents: one EXTENT[partitions] for each block
    """

    file: HashingWriter
    schema: pa.Schema = SPILL_SCHEMA
    extents: list[NDArray[np.void]] = field(default_factory=list)
    written: WorkFile | None = None

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write a block of records: one batch for each partition, in the order of partitions."""
        edges = [
            self.file.tell(),
            *(write_frames(self.file, batch, partition) for partition, batch in enumerate(batches)),
        ]
        self.extents.append(extents_between(np.array(edges, dtype=np.int64)))


@contextmanager
def create_spill(
    work: Folder, name: str, partitions: int, schema: pa.Schema = SPILL_SCHEMA
) -> Iterator[SpillWriter]:
    """Yield the writer of a spill. The writer's `written` is set when the context ends.

    Args:
        schema: schema of the batches that will be written.
    Raises:
        BuildError: the spill cannot be written.
    """
    if not grouped_by_partition(work, partitions):
        with work.written(name, durable=False) as file:
            writer = SpillWriter(file, schema)
            yield writer
            write_extents(file, np.concatenate([np.empty(0, dtype=EXTENT), *writer.extents]))
    else:
        with tempfile.TemporaryDirectory(
            prefix="thdpack-spill-", dir=work.where() if work.local else None
        ) as scratch:
            blocks = Path(scratch) / name
            remedy = "make room on its disk"
            if not work.local:
                folder = Path(scratch).parent
                remedy = f"make room in {folder}, or set TMPDIR to a folder with more room"
            with written_atomically(
                blocks, scratch=Path(scratch), durable=False, remedy=remedy
            ) as local:
                writer = SpillWriter(local, schema)
                yield writer
            with work.written(name, durable=False) as file:
                _group(blocks, file, writer, partitions)
    writer.written = WorkFile(name=name, bytes=file.bytes, xxh3_128=file.xxh3_128)


def grouped_by_partition(work: Folder, partitions: int) -> bool:
    """Return whether spills in a work folder are grouped by partition."""
    return not work.local or partitions >= GROUPED_FROM


def _group(blocks: Path, file: HashingWriter, written: SpillWriter, partitions: int) -> None:
    """Copy a spill that is ordered by block to a file that is ordered by partition."""
    with (
        pa.memory_map(str(blocks)) as blocks_map,
        tempfile.TemporaryFile(prefix="thdpack-spill-", dir=blocks.parent) as body,
    ):
        buffer = blocks_map.read_buffer()
        edges = np.zeros(partitions + 1, dtype=np.int64)
        writer = HashingWriter(cast(Any, body))
        for partition in range(partitions):
            for batch in _joined(blocks.name, buffer, written, partition):
                write_frames(writer, batch, partition)
            edges[partition + 1] = writer.tell()
        file.write(extents_between(edges + partitions * EXTENT.itemsize).tobytes())
        body.seek(0)
        while piece := body.read(1 << 20):
            file.write(piece)


def _joined(
    name: str, buffer: pa.Buffer, written: SpillWriter, partition: int
) -> list[pa.RecordBatch]:
    """Return a partition's records as one batch if they are small, else one batch per frame."""
    mine = [block[partition] for block in written.extents if block[partition]["size"]]
    batches: list[pa.RecordBatch] = []
    for extent in mine:
        frames = buffer.slice(int(extent["begin"]), int(extent["size"]))
        batches += read_frames(name, frames, partition, written.schema)[0]
    if len(batches) < 2 or sum(int(extent["size"]) for extent in mine) > _JOINED_BYTES:
        return batches
    joined = pa.Table.from_batches(batches).combine_chunks()
    return cast("list[pa.RecordBatch]", joined.to_batches())
