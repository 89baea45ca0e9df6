"""Work file of a table of clusters: the keys of all members, ascending, and their clusters' keys.

A table of --sample-clusters may also have the weight of each member, in units of 2^-30.

The key of a member is the xxh3_64 of its id. The key of a cluster is its representative's key. If
clusters were joined, the smallest of their keys is the key of the joined cluster.

A process that looks up members maps the file into memory. A file in an object store is first copied
to a temporary file on the local disk.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import number_array
from pipeline.build.task_results import WorkFile
from pipeline.reader.arrow_columns import numbers
from pipeline.storage.folder import Folder, Part
from schemas.errors import DamagedSpillError

_SCHEMA: Final = pa.schema(
    [
        pa.field("member", pa.uint64(), nullable=False),
        pa.field("cluster", pa.uint64(), nullable=False),
    ]
)
_WEIGHT: Final = pa.field("weight", pa.uint64(), nullable=False)
_EXAMPLES: Final = b"examples"
_BATCH_ROWS: Final = 1 << 16
"""Minimum number of rows in each record batch except the last."""
_STEP_BYTES: Final = 64 << 20

Rows = tuple[NDArray[np.uint64], ...]
"""Keys of members and of their clusters, and weights if the table has weights; each uint64[N]."""


def write_cluster_table(
    rows: Iterable[Rows],
    examples: Sequence[str],
    name: str,
    work: Folder,
    *,
    weighted: bool = False,
) -> WorkFile:
    """Write a table.

    Args:
        rows: rows in ascending order of the members' keys.
        examples: some ids of members, for messages.
        weighted: True if the rows have weights.
    Raises:
        BuildError: the file cannot be written.
    """
    schema = _SCHEMA.append(_WEIGHT) if weighted else _SCHEMA
    schema = schema.with_metadata({_EXAMPLES: json.dumps(list(examples)).encode()})
    with (
        work.written(name, durable=False) as file,
        pa.ipc.new_file(file, schema) as writer,
    ):
        for columns in _batches(rows):
            arrays = [number_array(column) for column in columns]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return WorkFile(name=name, bytes=file.bytes, xxh3_128=file.xxh3_128)


def _batches(rows: Iterable[Rows]) -> Iterator[list[NDArray[np.uint64]]]:
    """Yield the columns of record batches."""
    waiting: list[Rows] = []
    for part in rows:
        waiting.append(part)
        if sum(columns[0].size for columns in waiting) >= _BATCH_ROWS:
            yield [np.concatenate(columns) for columns in zip(*waiting, strict=True)]
            waiting = []
    if waiting:
        yield [np.concatenate(columns) for columns in zip(*waiting, strict=True)]


@dataclass(frozen=True, slots=True)
class ClusterTable:
    """A table that was opened by `open_cluster_table`.

    batches: rows in ascending order of the members' keys
    firsts: uint64[batches], key of the first member in each batch
    examples: some ids of members
    """

    batches: tuple[Rows, ...]
    firsts: NDArray[np.uint64]
    examples: tuple[str, ...]

    def find(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the key of each member's cluster, uint64[N]; 0 for a key that the table lacks.

        Args:
            keys: uint64[N], keys of members.
        """
        return self._find(keys, 1)

    def weights(self, keys: NDArray[np.uint64], clusters: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the weight of each member, uint64[N]; 0 for a key that the table lacks.

        In a table without weights, each member has the weight 1.

        Args:
            keys: uint64[N], keys of members.
            clusters: uint64[N], result of `find` for these keys.
        """
        if any(len(columns) > 2 for columns in self.batches):
            return self._find(keys, 2)
        return np.minimum(clusters, np.uint64(1))

    def _find(self, keys: NDArray[np.uint64], column: int) -> NDArray[np.uint64]:
        found = np.zeros(keys.size, dtype=np.uint64)
        order = np.argsort(keys)  # the keys of one batch become adjacent
        wanted = keys[order]
        edges = [*np.searchsorted(wanted, self.firsts).tolist(), keys.size]
        for columns, first, last in zip(self.batches, edges[:-1], edges[1:], strict=True):
            members, part = columns[0], wanted[first:last]
            at = np.minimum(np.searchsorted(members, part), members.size - 1)
            same = members[at] == part
            found[order[first:last][same]] = columns[column][at[same]]
        return found


_last_opened: tuple[str, str, ClusterTable] | None = None
"""Path, hash and content of the last table opened. A process works on one build at a time."""


def open_cluster_table(file: WorkFile, work: Folder) -> ClusterTable:
    """Open a table; a process reads the whole file once, to check its hash.

    Raises:
        DamagedSpillError: the file is damaged.
        FileNotFoundError, ThdpackError: the file is missing or cannot be read.
    """
    global _last_opened
    place = work.where(file.name), file.xxh3_128
    if _last_opened is None or _last_opened[:2] != place:
        buffer = work.buffer(file.name) if work.local else _copied(file, work)
        if buffer.size != file.bytes or xxhash.xxh3_128_hexdigest(buffer) != file.xxh3_128:
            raise DamagedSpillError(file.name)
        _last_opened = (*place, _table(buffer))
    return _last_opened[2]


def _copied(file: WorkFile, work: Folder) -> pa.Buffer:
    """Copy a file of an object store to a temporary file on the local disk, and map it."""
    with tempfile.NamedTemporaryFile(prefix="thdpack-clusters-") as copy:
        for begin in range(0, file.bytes, _STEP_BYTES):
            end = min(begin + _STEP_BYTES, file.bytes)
            copy.write(work.parts([Part(file.name, begin, end)])[0])
        copy.flush()
        with pa.memory_map(copy.name) as mapped:
            return mapped.read_buffer()  # the mapping stays valid after the file is deleted


def _table(buffer: pa.Buffer) -> ClusterTable:
    reader = pa.ipc.open_file(buffer)
    batches = []
    for i in range(reader.num_record_batches):
        batch = reader.get_batch(i)
        columns: list[NDArray[Any]] = [numbers(column, np.uint64) for column in batch.columns]
        if batch.num_rows:
            batches.append(tuple(columns))
    return ClusterTable(
        batches=tuple(batches),
        firsts=np.array([columns[0][0] for columns in batches], dtype=np.uint64),
        examples=tuple(json.loads(reader.schema.metadata[_EXAMPLES])),
    )
