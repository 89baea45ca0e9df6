"""Link files. Each link task writes the cluster and weight of each record of its partition.

A frame is a record batch with its hash (see `spill.frames`). Parts of a link file:

1. Frames with pairs of clusters that must be in the same split.
2. Frames with cluster and weight of each record, in the order in which `SpilledRecords` reads the
   records.
3. One extent: the position and size of part 2.

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
) -> tuple[WorkFile, int]:
    """Write a link file. Return the file, and the size of its first part in bytes.

    Args:
        pairs: uint64[M, 2], keys of clusters to join.
        clusters: for each run of N consecutive records, the key of each record's cluster and the
            record's weight, both uint64[N]; 0 for a record in no cluster.
    Raises:
        BuildError: the file cannot be written.
    """
    with work.written(name, durable=False) as file:
        write_frames(file, _batch(_PAIRS, pairs[:, 0], pairs[:, 1]), 0)
        pair_bytes = file.tell()
        for keys, weights in clusters:
            write_frames(file, _batch(_RECORDS, keys, weights), 0)
        file.write(extents_between(np.array([pair_bytes, file.tell()])).tobytes())
    return WorkFile(name=name, bytes=file.bytes, xxh3_128=file.xxh3_128), pair_bytes


def read_pairs(work: Folder, results: Sequence[LinkResult]) -> NDArray[np.uint64]:
    """Return the pairs of all link tasks, uint64[M, 2].

    Raises:
        DamagedSpillError: a link file is damaged.
    """
    wanted = [Part(r.links.name, 0, r.pair_bytes) for r in results if r.pair_bytes]
    found = [np.empty((0, 2), dtype=np.uint64)]
    for part, buffer in zip(wanted, work.parts(wanted), strict=True):
        batches, read = read_frames(part.name, buffer, 0, _PAIRS)
        if read != part.end:
            raise DamagedSpillError(part.name)
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
