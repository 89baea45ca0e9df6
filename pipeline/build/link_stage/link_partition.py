"""A link task: find the cluster of each record of a partition, and clusters that must be joined.

Records with the same first piece (the first max_seq_len - 2 residues) must be in the same split,
and so must all records of a cluster. Therefore two clusters are joined if a record of one cluster
has the same first piece as a record of the other cluster. Records with the same first piece are in
one partition, so one task reads all of them.

1. Look up each record in the table of clusters: by its id, else by the accession in its header. If
   MMseqs2 made the table in this build, look up the hash of the record's sequence instead. With
   --sample-clusters, also look up the record's weight.
2. For each first piece, collect the clusters of all kept records with this first piece. (Duplicates
   are still among the kept records.) These clusters must be joined. Write one pair for each cluster
   except the one with the smallest key: that smallest key, and the key of the cluster.
3. A kept record that is not in the table may share its first piece with records in the table. Give
   it their cluster and the largest of their weights.

A partition that does not fit into memory is read twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges, gather_runs, take_bytes
from pipeline.build.arrays.sequence_hashes import sequence_hashes
from pipeline.build.clusters.link_files import write_links
from pipeline.build.clusters.link_task import LinkTask
from pipeline.build.named_files.clusters.cluster_kernel import text_keys
from pipeline.build.named_files.clusters.cluster_table import ClusterTable, open_cluster_table
from pipeline.build.named_files.clusters.joined_keys import largest_weights, smallest_clusters
from pipeline.build.reduce_stage.deduplicate import KEPT
from pipeline.build.reduce_stage.record_rows import RecordRows
from pipeline.build.reduce_stage.spilled_records import RecordRun, SpilledRecords
from pipeline.build.spill.spill_kernel import unpack
from pipeline.build.task_results import LinkResult
from pipeline.build.tasks import OnBytes
from pipeline.inputs.headers import unpack_headers

_EXAMPLES: Final = 5
"""Maximum number of records outside the table whose ids are reported."""


@dataclass(frozen=True, slots=True)
class _LookedUp:
    """Records of a run (a group of consecutive records of the partition).

    clusters: uint64[N], key of the cluster of each record, 0 for none
    weights:  uint64[N], weight of each record, 0 for none
    kept:     int64[M], indices of the kept records
    pieces:   uint64[M], lower half of the hash of each kept record's first piece. The split of a
        record without a cluster depends only on this half, so two pieces with the same lower half
        are in the same split anyway.
    """

    clusters: NDArray[np.uint64]
    weights: NDArray[np.uint64]
    kept: NDArray[np.int64]
    pieces: NDArray[np.uint64]


def link_partition(task: LinkTask, on_bytes: OnBytes) -> LinkResult:
    """Write a partition's link file; return its counts.

    Raises:
        DamagedSpillError: a spill or the table of clusters is damaged.
        BuildError: the file cannot be written.
    """
    spilled = SpilledRecords(task)
    table = open_cluster_table(task.job.clusters.file, task.work)
    kept: list[_LookedUp] = []
    shared = _SharedPieces()
    records = found = 0
    examples: list[str] = []
    for run in spilled.runs():
        looked_up = _look_up(run, table, task)
        shared.add(looked_up)
        records += len(run.rows)
        found += int(np.count_nonzero(looked_up.clusters))
        if not task.by_sequence:
            missing = np.flatnonzero(looked_up.clusters == 0)[: _EXAMPLES - len(examples)]
            examples += [_text(run.rows.id[i]) for i in missing.tolist()]
        on_bytes(int(run.rows.residues.sum()))
        if not spilled.large:
            kept.append(looked_up)
    again = (_look_up(run, table, task) for run in spilled.runs()) if spilled.large else kept
    links, pair_bytes, piece_bytes = write_links(
        task.work,
        task.links,
        shared.pairs,
        (shared.clusters_of(run) for run in again),
        None if task.job.parent is None else shared.pieces,
    )
    return LinkResult(
        links=links,
        pair_bytes=pair_bytes,
        piece_bytes=piece_bytes,
        records=records,
        found=found,
        examples=tuple(examples),
    )


def _look_up(run: RecordRun, table: ClusterTable, task: LinkTask) -> _LookedUp:
    """Find the cluster of each record of a run, and hash the first pieces."""
    find = _find_sequences if task.by_sequence else _find_names
    keys, clusters = find(run.rows, table)
    kept = np.flatnonzero(run.rows.status == KEPT)
    pieces = _first_pieces(run, task.job.options.longest_piece)[kept]
    return _LookedUp(clusters, table.weights(keys, clusters), kept, pieces)


_Found = tuple[NDArray[np.uint64], NDArray[np.uint64]]
"""uint64[N], key by which each record was looked up; uint64[N], key of its cluster, 0 for none."""


def _find_sequences(rows: RecordRows, table: ClusterTable) -> _Found:
    """Look up the lower halves of the records' hashes. `cluster_records` gave them to MMseqs2 as
    the ids of the sequences, in decimal digits."""
    names = [b"%d" % low for low in rows.hash["low"].tolist()]
    ends = np.cumsum([0, *map(len, names)], dtype=np.int64)
    keys = _keys(np.frombuffer(b"".join(names), dtype=np.uint8), ends[:-1], ends[1:])
    return keys, table.find(keys)


def _find_names(rows: RecordRows, table: ClusterTable) -> _Found:
    """Look up the records' ids, and the accessions of records whose ids are not found."""
    ids, edges = bytes_and_edges(rows.id)
    keys = _keys(ids, edges[:-1], edges[1:])
    clusters = table.find(keys)
    missing = np.flatnonzero(clusters == 0)
    if missing.size:
        ids, stated = (take_bytes(column, missing) for column in (rows.id, rows.stated))
        accession = unpack_headers(*bytes_and_edges(ids), *bytes_and_edges(stated)).accession
        edges = accession.edges.astype(np.int64)
        keys[missing] = _keys(accession.values, edges[:-1], edges[1:])
        clusters[missing] = np.where(edges[:-1] < edges[1:], table.find(keys[missing]), 0)
    return keys, clusters


def _keys(
    values: NDArray[np.uint8], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.uint64]:
    keys = np.empty(begin.size, dtype=np.uint64)
    text_keys(values, begin, end, keys)
    return keys


def _text(id: pa.Scalar) -> str:
    return str(id.as_py().decode("utf-8", "backslashreplace"))


def _first_pieces(run: RecordRun, longest: int) -> NDArray[np.uint64]:
    """Return the lower half of the hash of each record's first piece, uint64[N].

    If a record has at most `longest` residues, its first piece is the whole record, whose hash is
    known. Only the first pieces of longer records are unpacked and hashed.
    """
    pieces = run.rows.hash["low"].astype(np.uint64)
    first = 0
    for batch in run.batches:
        last = first + batch.num_rows
        long = np.flatnonzero(run.rows.residues[first:last] > longest)
        if long.size:
            packed, edges = bytes_and_edges(batch.column("packed"))
            begin = edges[:-1][long]
            prefixes = gather_runs(packed, begin, begin + (5 * longest + 7) // 8, pa.large_binary())
            tokens = np.empty(long.size * longest, dtype=np.uint8)
            sizes = np.full(long.size, longest, dtype=np.int64)
            unpack(bytes_and_edges(prefixes)[0], sizes, tokens)
            pieces[first + long] = sequence_hashes(tokens, np.cumsum(sizes))["low"]
        first = last
    return pieces


class _SharedPieces:
    """First pieces of the kept records in clusters, each with the smallest key of its clusters and
    the largest weight of its records."""

    def __init__(self) -> None:
        self._pieces = np.empty(0, dtype=np.uint64)  # ascending
        self._clusters = np.empty(0, dtype=np.uint64)
        self._weights = np.empty(0, dtype=np.uint64)
        self._pairs = [np.empty((0, 2), dtype=np.uint64)]

    def add(self, run: _LookedUp) -> None:
        """Add the records of a run."""
        clusters = run.clusters[run.kept]
        clustered = clusters != 0
        pieces = np.concatenate((self._pieces, run.pieces[clustered]))
        self._weights = largest_weights(
            pieces, np.concatenate((self._weights, run.weights[run.kept][clustered]))
        )
        self._pieces, self._clusters, pairs = smallest_clusters(
            pieces, np.concatenate((self._clusters, clusters[clustered]))
        )
        self._pairs.append(pairs)

    @property
    def pairs(self) -> NDArray[np.uint64]:
        """Pairs of clusters that share a first piece, uint64[M, 2]; each pair once."""
        return np.unique(np.concatenate(self._pairs), axis=0)

    @property
    def pieces(self) -> NDArray[np.uint64]:
        """First pieces, ascending, and the smallest key of each one's clusters, uint64[K, 2]."""
        return np.stack((self._pieces, self._clusters), axis=1)

    def clusters_of(self, run: _LookedUp) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the clusters and the weights of a run's records, both uint64[N]. A kept record
        outside the table gets the cluster and the weight of its first piece, if they are known."""
        clusters, weights = run.clusters.copy(), run.weights.copy()
        if self._pieces.size == 0:
            return clusters, weights
        at = np.minimum(np.searchsorted(self._pieces, run.pieces), self._pieces.size - 1)
        adopted = (self._pieces[at] == run.pieces) & (clusters[run.kept] == 0)
        clusters[run.kept[adopted]] = self._clusters[at[adopted]]
        weights[run.kept[adopted]] = self._weights[at[adopted]]
        return clusters, weights
