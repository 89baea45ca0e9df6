"""A partition whose records do not fit into memory, such as one sequence in millions of copies.

Such a partition is read twice from the spills (the map tasks' files), in runs. A run is a group of
consecutive records that fits into memory.

1. First pass: for each run, find the sequences that no earlier run had. Keep the residues of these
   sequences. Also keep a row for each kept record, but not its id and the values that its header
   states. With --exclude, note which records are excluded. If duplicates of excluded records must
   be excluded too (`RecordExclusion.spreads`), an additional pass comes before this one. That pass
   notes the sequences of excluded records.
2. The caller shuffles, packs and writes the kept sequences. In each record's row, it stores the
   shard and bucket of the record's first sequence. (With `--long split`, a record may have several
   sequences.)
3. Second pass: for each run, mark each duplicate, and name the record that the duplicate repeats.
   Copy split, shard and bucket into the rows of kept records. Yield complete rows of all records.

A partition needs about 250 MB of memory, whatever its size. In addition, memory holds the residues
of all unique sequences, and about 200 bytes for each kept record. With `--dedup none`, every copy
counts as a kept record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.bucket_kernel import gather
from pipeline.build.arrays.sequence_hashes import first_piece_hashes, split_hashes, split_of
from pipeline.build.hash_index.index_runs import EarlierRecords
from pipeline.build.options import DatasetOptions
from pipeline.build.reduce_stage.deduplicate import (
    DUPLICATE,
    KEPT,
    count_copies,
    cropped_copy_candidates,
    mark_duplicates,
    mark_known,
    residues_by_status,
)
from pipeline.build.reduce_stage.exclude_records import RecordExclusion, Tokens, set_excluded
from pipeline.build.reduce_stage.record_rows import RecordRows, empty_rows
from pipeline.build.reduce_stage.spilled_records import RecordRun, SpilledRecords
from pipeline.build.reduce_stage.whole_partition import Partition, assign_splits
from pipeline.build.tasks import OnBytes
from schemas.records import STATUS_CODES

_COLUMNS = (
    *("ordinal", "source", "offset", "residues", "unknown", "hash", "status", "split"),
    *("cluster", "weight"),
)


class SeenSequences:
    """The sequences seen so far. Each has a hash, the ordinal of its first record (the record's
    number among all input records), and the index of its first residue."""

    def __init__(self) -> None:
        self._hash = np.empty(0, dtype="S16")  # sorted
        self._ordinal = np.empty(0, dtype=np.int64)
        self._begin = np.empty(0, dtype=np.int64)

    def add(
        self, hashes: NDArray[np.void], ordinals: NDArray[np.int64], begin: NDArray[np.int64]
    ) -> None:
        """Add sequences. The caller must not add a sequence twice.

        Args:
            hashes: HASH[N], hashes of the sequences.
            ordinals: int64[N], ordinals of their records.
            begin: int64[N], index of each sequence's first residue in the token array.
        """
        order = np.argsort(_as_bytes(hashes))
        hashes, ordinals, begin = hashes[order], ordinals[order], begin[order]
        at = np.searchsorted(self._hash, _as_bytes(hashes))
        self._hash = np.insert(self._hash, at, _as_bytes(hashes))
        self._ordinal = np.insert(self._ordinal, at, ordinals)
        self._begin = np.insert(self._begin, at, begin)

    def find(self, hashes: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the index of each sequence, int64[N]; -1 for a new sequence."""
        if self._hash.size == 0:
            return np.full(hashes.size, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._hash, _as_bytes(hashes)), self._hash.size - 1)
        return np.where(self._hash[at] == _as_bytes(hashes), at, -1)

    def ordinals(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ordinal of the first record of each sequence, int64[N].

        Args:
            index: int64[N], indices that `find` returned.
        """
        return self._ordinal[index]

    def begins(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of each sequence's first residue in the token array, int64[N].

        Args:
            index: int64[N], indices that `find` returned.
        """
        return self._begin[index]


def _as_bytes(hashes: NDArray[np.void]) -> NDArray[np.bytes_]:
    """Return hashes as byte strings. numpy compares byte strings fast, and their order is the order
    of the digests."""
    return np.ascontiguousarray(hashes).view("S16")


class LargePartition(Partition):
    """A partition of many runs. `rows` holds only kept records. Their ids and the values that their
    headers state stay in the spills."""

    def __init__(
        self,
        spilled: SpilledRecords,
        options: DatasetOptions,
        on_bytes: OnBytes,
        exclusion: RecordExclusion | None = None,
        earlier: EarlierRecords | None = None,
    ) -> None:
        """Do the first pass. If `exclusion.spreads` is True, do the additional pass before it.

        Args:
            exclusion: object that marks the excluded records; None without --exclude.
            earlier: records that the dataset had before this append; None if there are none, or
                with --dedup none.
        Raises:
            DamagedSpillError: a spill is damaged.
        """
        self._spilled = spilled
        self._options = options
        self._seen = SeenSequences()
        self._left_over_rows = empty_rows()
        self._exclusion = exclusion
        self._earlier = earlier
        self._excluded: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        """For each run: indices of the excluded records, and the keys of their matches."""
        self.counts = np.zeros(len(STATUS_CODES), dtype=np.int64)
        self.residues = np.zeros(len(STATUS_CODES), dtype=np.int64)
        residues = bytearray()
        kept: list[RecordRows] = []
        begin: list[NDArray[np.int64]] = []
        long_pieces: list[NDArray[np.void]] = []
        if exclusion is not None and exclusion.spreads:
            for run in spilled.runs():
                tokens = run.tokens() if exclusion.looks_at_tokens else None
                exclusion.look(run.rows, self._hashes(run, tokens), tokens)
        for run in spilled.runs():
            rows, at, first_pieces = self._read(run, residues)
            long_pieces.append(first_pieces)
            on_bytes(int(run.rows.residues.sum()))
            kept.append(rows)
            begin.append(at)
        self.cropped_copies = count_copies(np.concatenate(long_pieces))
        self.rows = empty_rows().followed_by(*kept)
        self.begin = np.concatenate(begin)
        self.tokens = np.frombuffer(residues, dtype=np.uint8)

    def _read(
        self, run: RecordRun, residues: bytearray
    ) -> tuple[RecordRows, NDArray[np.int64], NDArray[np.void]]:
        """Read a run in the first pass, and append the residues of its new sequences to `residues`.

        Returns:
            N kept records, without ids; int64[N], index of each record's first residue; HASH[M],
            hashes of the first pieces (the first max_seq_len - 2 residues) of long records.
        """
        options, rows = self._options, run.rows
        tokens, edges = run.tokens()
        cropped = first_piece_hashes(tokens, edges[1:], rows.hash, options.longest_piece)
        hashes = cropped if options.dedup == "cropped" else rows.hash
        if self._exclusion is not None:
            self._exclusion.mark(rows, hashes, (tokens, edges))
            excluded = np.flatnonzero(rows.match >= 0)
            self._excluded.append((excluded, rows.match[excluded]))
        if self._earlier is not None:
            rows.status = mark_known(rows.status, hashes, rows.duplicate_of, self._earlier)
        candidates = np.flatnonzero(rows.status == KEPT)
        new = self._first_occurrences(rows, candidates, hashes)
        sizes = rows.residues[new]
        if options.long == "truncate":
            sizes = np.minimum(sizes, options.longest_piece)
        self._seen.add(hashes[new], rows.ordinal[new], len(residues) + np.cumsum(sizes) - sizes)
        new_residues = np.empty(int(sizes.sum()), dtype=np.uint8)
        gather(tokens, edges[:-1][new], edges[:-1][new] + sizes, new_residues)
        residues += new_residues.data
        kept = candidates if options.dedup == "none" else new
        self.counts += np.bincount(rows.status, minlength=self.counts.size)
        self.counts[KEPT] -= candidates.size - kept.size
        self.counts[DUPLICATE] += candidates.size - kept.size
        self.residues += residues_by_status(rows.status, rows.residues)
        repeated = int(rows.residues[candidates].sum() - rows.residues[kept].sum())
        self.residues[KEPT] -= repeated
        self.residues[DUPLICATE] += repeated
        chosen = _without_ids(rows, kept)
        deciding = split_hashes(cropped[kept], rows.cluster[kept])
        chosen.split = assign_splits(chosen, split_of(deciding, options.fractions))
        long = cropped_copy_candidates(chosen.status, chosen.residues, options)
        return chosen, self._seen.begins(self._seen.find(hashes[kept])), cropped[kept][long]

    def _first_occurrences(
        self, rows: RecordRows, candidates: NDArray[np.int64], hashes: NDArray[np.void]
    ) -> NDArray[np.int64]:
        """Return the candidates that are the first record with their hash in all runs so far."""
        unseen = candidates[self._seen.find(hashes[candidates]) < 0]
        all_kept = np.full(unseen.size, KEPT, dtype=np.int8)
        status, _ = mark_duplicates(all_kept, hashes[unseen], rows.ordinal[unseen])
        first: NDArray[np.int64] = unseen[status == KEPT]
        return first

    def rows_to_write(
        self, to_write: NDArray[np.bool_], left_over: NDArray[np.int64]
    ) -> Iterator[RecordRows]:
        """Do the second pass; see `Partition`."""
        is_left_over = np.zeros(len(self.rows), dtype=np.bool_)
        is_left_over[left_over] = True
        left_over_rows: list[RecordRows] = []
        first = 0
        for i, run in enumerate(self._spilled.runs()):
            rows = run.rows
            if self._exclusion is not None:
                set_excluded(rows, *self._excluded[i])
            kept = self._mark_duplicates(run)
            last = first + kept.size  # runs and `self.rows` have kept records in the same order
            for name in ("split", "shard", "bucket"):
                getattr(rows, name)[kept] = getattr(self.rows, name)[first:last]
            rows.shard_names = self.rows.shard_names
            left_over_rows.append(rows.take(kept[is_left_over[first:last]]))
            unwritten = kept[~to_write[first:last]]
            first = last
            yield rows.take(np.delete(np.arange(len(rows)), unwritten)) if unwritten.size else rows
        self._left_over_rows = empty_rows().followed_by(*left_over_rows)

    def _mark_duplicates(self, run: RecordRun) -> NDArray[np.int64]:
        """Set status and `duplicate_of` of a run's duplicates; return the kept records' indices."""
        rows = run.rows
        if self._options.dedup == "none":
            return np.flatnonzero(rows.status == KEPT)
        hashes = self._hashes(run)
        if self._earlier is not None:
            rows.status = mark_known(rows.status, hashes, rows.duplicate_of, self._earlier)
        kept = np.flatnonzero(rows.status == KEPT)
        original = self._seen.ordinals(self._seen.find(hashes[kept]))
        is_copy = original != rows.ordinal[kept]
        rows.duplicate_of[kept[is_copy]] = original[is_copy]
        rows.status = rows.status.copy()
        rows.status[kept[is_copy]] = DUPLICATE
        originals: NDArray[np.int64] = kept[~is_copy]
        return originals

    def _hashes(self, run: RecordRun, unpacked: Tokens | None = None) -> NDArray[np.void]:
        """Return hashes, HASH[N], that are equal for duplicates. Tokens are unpacked only if a
        long record must be cropped."""
        longest = self._options.longest_piece
        if self._options.dedup != "cropped" or not (run.rows.residues > longest).any():
            return run.rows.hash
        tokens, edges = unpacked or run.tokens()
        return first_piece_hashes(tokens, edges[1:], run.rows.hash, longest)

    def take(self, row: NDArray[np.int64]) -> RecordRows:
        """Return left-over rows, with ids; see `Partition`."""
        at = np.searchsorted(self._left_over_rows.ordinal, self.rows.ordinal[row])
        return self._left_over_rows.take(at)


def _without_ids(rows: RecordRows, chosen: NDArray[np.int64]) -> RecordRows:
    """Return the rows at `chosen`, int64[M]. Their fields `id` and `stated` are empty, because all
    ids together may take gigabytes."""
    columns: dict[str, Any] = {name: getattr(rows, name)[chosen] for name in _COLUMNS}
    empty = _empty_texts(chosen.size)
    return RecordRows(id=empty, stated=empty, **columns)


def _empty_texts(count: int) -> pa.Array:
    """Return `count` empty texts as a large_binary array."""
    return pa.Array.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(bytes(8 * count + 8)), pa.py_buffer(b"")]
    )
