"""Find the clusters of earlier generations to which new records belong. Only appends need this.

A record's split never changes, so new records must be in the split of the earlier records of their
cluster. A cluster of an earlier generation and a cluster of new records are the same cluster in
these cases:

1. Both have the same key.
2. An earlier record is the representative of the new records' cluster, or the new table of clusters
   lists it in that cluster.
3. An earlier record has the same sequence as the first piece (the first max_seq_len - 2 residues)
   of a new record.

Long records with the same first piece as a long new record are not found, because records/ has
only the hash of the whole sequence.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges, one_chunk
from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.build.clusters.earlier_task import EarlierClusters, EarlierTask
from pipeline.build.clusters.link_files import read_pairs, read_pieces
from pipeline.build.generations.read_records import row_groups
from pipeline.build.named_files.clusters.cluster_kernel import text_keys
from pipeline.build.named_files.clusters.cluster_table import open_cluster_table
from pipeline.build.tasks import OnBytes
from pipeline.reader.arrow_columns import numbers

_COLUMNS: Final = ("id", "accession", "hash", "cluster")


def find_earlier(task: EarlierTask, on_bytes: OnBytes) -> EarlierClusters:
    """Return the earlier clusters of a task's records/ files that have new records.

    Raises:
        DatasetError: a records/ file is missing, damaged or cannot be read.
        DamagedSpillError: a link file or the table of clusters is damaged.
    """
    new = _NewRecords(task)
    parts = []
    for entry in task.records:
        parts += [new.pairs(group) for group in row_groups(task.out, entry, _COLUMNS)]
        on_bytes(entry.bytes)
    return EarlierClusters.together(parts)


class _NewRecords:
    """The clusters and first pieces of the new records, and the table of clusters."""

    def __init__(self, task: EarlierTask) -> None:
        """Read the link files and the table.

        Raises:
            DamagedSpillError: a file is damaged.
        """
        pieces = read_pieces(task.work, task.links)
        pieces = pieces[np.argsort(pieces[:, 0])]
        self._pieces, self._clusters = pieces[:, 0].copy(), pieces[:, 1].copy()
        pairs = read_pairs(task.work, task.links)
        self._used = np.unique(np.concatenate((self._clusters, pairs.ravel())))
        self._table = open_cluster_table(task.table, task.work)

    def pairs(self, group: pa.Table) -> EarlierClusters:
        """Return the pairs of a row group."""
        clusters = one_chunk(group.column("cluster"))
        rows = np.flatnonzero(clusters.is_valid().to_numpy(zero_copy_only=False))
        earlier = numbers(clusters.fill_null(0), np.uint64)[rows]
        hashes = numbers(one_chunk(group.column("hash")), HASH)["low"][rows].astype(np.uint64)
        found = [self._same(earlier, earlier), self._same(earlier, self._of_pieces(hashes))]
        for name in ("id", "accession"):
            values, edges = bytes_and_edges(one_chunk(group.column(name)))
            begin, end = edges[:-1][rows], edges[1:][rows]
            keys = np.empty(rows.size, dtype=np.uint64)
            text_keys(values, begin, end, keys)
            stated = begin < end
            for others in (keys, self._table.find(keys)):
                found.append(self._same(earlier[stated], others[stated]))
        return EarlierClusters.together(found)

    def _of_pieces(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the cluster of the first piece with each hash, uint64[N], 0 for none."""
        if not self._pieces.size:
            return np.zeros(hashes.size, dtype=np.uint64)
        at = np.minimum(np.searchsorted(self._pieces, hashes), self._pieces.size - 1)
        return np.where(self._pieces[at] == hashes, self._clusters[at], np.uint64(0))

    def _same(self, earlier: NDArray[np.uint64], clusters: NDArray[np.uint64]) -> EarlierClusters:
        """Return the pairs of clusters whose second cluster has new records.

        Args:
            earlier, clusters: uint64[N], keys of two clusters that have a record in common. A key
                of `clusters` is 0 if there is no such cluster.
        """
        if not self._used.size:
            return EarlierClusters(np.empty((0, 2), dtype=np.uint64))
        at = np.minimum(np.searchsorted(self._used, clusters), self._used.size - 1)
        used = self._used[at] == clusters
        return EarlierClusters(np.stack((earlier[used], clusters[used]), axis=1))
