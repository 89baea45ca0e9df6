"""Link files. Each link task writes the cluster and weight of each record of its partition.

A frame is a record batch with its hash (see `spill.frames`). Parts of a link file:

1. Frames with pairs of clusters that must be in the same split.
2. Only in an append: frames with pairs of a first piece (see `joined_clusters`) and a cluster, for
   the kept records in clusters.
3. Frames with cluster and weight of each record, in the order in which `SpilledRecords` reads the
   records.
4. One extent: the position and size of part 3.

A cluster is stored as its key, the xxh3_64 of its representative's id. Weights are in units of
2^-30 if the table of --sample-clusters has weights. Otherwise each record in a cluster has the
weight 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import number_array
from pipeline.build.named_files.clusters.joined_keys import JoinedKeys
from pipeline.build.spill.frames import (
    EXTENT,
    extents_between,
    last_extent,
    read_frames,
    write_frames,
)
from pipeline.build.task_results import LinkResult, WorkFile
from pipeline.reader.arrow_columns import numbers
from pipeline.storage.folder import Folder, Part
from schemas.errors import DamagedSpillError

_PAIRS: Final = pa.schema([("first", pa.uint64()), ("second", pa.uint64())])
_RECORDS: Final = pa.schema([("cluster", pa.uint64()), ("weight", pa.uint64())])


def write_links(
    work: Folder,
    name: str,
    pairs: NDArray[np.uint64],
    clusters: Iterable[tuple[NDArray[np.uint64], NDArray[np.uint64]]],
    pieces: NDArray[np.uint64] | None = None,
) -> tuple[WorkFile, int, int]:
    """Write a link file. Return the file, and the sizes of its first two parts in bytes.

    Args:
        pairs: uint64[M, 2], keys of clusters to join.
        clusters: for each run of N consecutive records, the key of each record's cluster and the
            record's weight, both uint64[N]; 0 for a record in no cluster.
        pieces: uint64[K, 2], lower half of the hash of each first piece, and key of its cluster.
            None if the build does not append.
    Raises:
        BuildError: the file cannot be written.
    """
    with work.written(name, durable=False) as file:
        write_frames(file, _batch(_PAIRS, pairs[:, 0], pairs[:, 1]), 0)
        pair_bytes = begin = file.tell()
        if pieces is not None:
            write_frames(file, _batch(_PAIRS, pieces[:, 0], pieces[:, 1]), 0)
            begin = file.tell()
        for keys, weights in clusters:
            write_frames(file, _batch(_RECORDS, keys, weights), 0)
        file.write(extents_between(np.array([begin, file.tell()])).tobytes())
    links = WorkFile(name=name, bytes=file.bytes, xxh3_128=file.xxh3_128)
    return links, pair_bytes, begin - pair_bytes


def read_pairs(work: Folder, results: Sequence[LinkResult]) -> NDArray[np.uint64]:
    """Return the pairs of all link tasks, uint64[M, 2].

    Raises:
        DamagedSpillError: a link file is damaged.
    """
    return _read_parts(work, [(r.links.name, 0, r.pair_bytes) for r in results])


def read_pieces(work: Folder, results: Sequence[LinkResult]) -> NDArray[np.uint64]:
    """Return the first pieces and clusters that all link tasks of an append have written,
    uint64[K, 2].

    Raises:
        DamagedSpillError: a link file is damaged.
    """
    return _read_parts(
        work, [(r.links.name, r.pair_bytes, r.pair_bytes + r.piece_bytes) for r in results]
    )


def _read_parts(work: Folder, ranges: Sequence[tuple[str, int, int]]) -> NDArray[np.uint64]:
    """Read frames of _PAIRS.

    Args:
        ranges: name of each link file, first byte, and the byte after the last one.
    Raises:
        DamagedSpillError: a link file is damaged.
    """
    wanted = [each for each in ranges if each[2] > each[1]]
    found = [np.empty((0, 2), dtype=np.uint64)]
    buffers = work.parts([Part(*each) for each in wanted])
    for (name, begin, end), buffer in zip(wanted, buffers, strict=True):
        batches, read = read_frames(name, buffer, 0, _PAIRS)
        if read != end - begin:
            raise DamagedSpillError(name)
        found += [np.stack(_columns(batch), axis=1) for batch in batches]
    return np.concatenate(found)


class RecordClusters:
    """Clusters of a partition's records, in the order in which the records are read."""

    def __init__(self, work: Folder, name: str, joined: JoinedKeys) -> None:
        """Open a link file.

        Args:
            joined: clusters that were joined.
        Raises:
            DamagedSpillError: the file is damaged.
        """
        buffer = work.buffer(name)
        begin, size = last_extent(name, buffer)
        if begin < 0 or begin + size != buffer.size - EXTENT.itemsize:
            raise DamagedSpillError(name)
        batches, read = read_frames(name, buffer.slice(begin, size), 0, _RECORDS)
        if read != size:
            raise DamagedSpillError(name)
        self._name = name
        self._joined = joined
        self._parts = [_columns(batch) for batch in batches]
        self._ends = np.cumsum([part[0].size for part in self._parts], dtype=np.int64)

    def of(self, first: int, count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the cluster keys and the weights of records first … first + count - 1.

        If a cluster was joined with others, its key is that of the joined cluster. A record in no
        cluster has the key 0 and the weight 0.

        Raises:
            DamagedSpillError: the file has fewer records.
        """
        clusters, weights = (self._slice(column, first, count) for column in range(2))
        return self._joined.of(clusters), weights

    def _slice(self, column: int, first: int, count: int) -> NDArray[np.uint64]:
        found = [np.empty(0, dtype=np.uint64)]
        for part, end in zip(self._parts, self._ends.tolist(), strict=True):
            begin = end - part[column].size
            found.append(part[column][max(0, first - begin) : max(0, first + count - begin)])
        values = np.concatenate(found)
        if values.size != count:
            raise DamagedSpillError(self._name)
        return values


def _batch(schema: pa.Schema, *columns: NDArray[np.uint64]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([number_array(column) for column in columns], schema=schema)


def _columns(batch: pa.RecordBatch) -> list[NDArray[Any]]:
    return [numbers(column, np.uint64) for column in batch.columns]
