"""A partition whose records do not fit into memory, as one sequence in millions of copies makes it: read twice, run by run.

The first time finds what is kept, the second writes a row for every record. In memory are the residues of unique sequences, about 200 bytes
for each kept record, and about 250 MB whatever the partition. With --dedup none every copy is kept, and has its 200 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.bucket_kernel import gather
from pipeline.build.arrays.sequence_hashes import first_piece_hashes, in_valid
from pipeline.build.options import DatasetOptions
from pipeline.build.reduce_stage.deduplicate import (
    DUPLICATE,
    KEPT,
    count_copies,
    cropped_copy_candidates,
    mark_duplicates,
)
from pipeline.build.reduce_stage.spilled_records import RecordRun, SpilledRecords
from pipeline.build.reduce_stage.whole_partition import Partition, assign_splits
from pipeline.build.reduce_stage.write_records import RecordRows, empty_rows
from pipeline.build.tasks import OnBytes
from schemas.records import STATUS_CODES

_COLUMNS = ("ordinal", "source", "offset", "residues", "unknown", "hash", "status", "split")


class SeenSequences:
    """Sequences that were seen, by hash: the ordinal of the first record of each, and where its residues are."""

    def __init__(self) -> None:
        self._hash = np.empty(0, dtype="S16")
        self._ordinal = np.empty(0, dtype=np.int64)
        self._begin = np.empty(0, dtype=np.int64)

    def add(
        self, hashes: NDArray[np.void], ordinals: NDArray[np.int64], begin: NDArray[np.int64]
    ) -> None:
        """Note sequences that were not known, each once."""
        order = np.argsort(_text(hashes))
        hashes, ordinals, begin = hashes[order], ordinals[order], begin[order]
        at = np.searchsorted(self._hash, _text(hashes))
        self._hash = np.insert(self._hash, at, _text(hashes))
        self._ordinal = np.insert(self._ordinal, at, ordinals)
        self._begin = np.insert(self._begin, at, begin)

    def find(self, hashes: NDArray[np.void]) -> NDArray[np.int64]:
        """Index of each sequence, -1 of those that are not known."""
        if self._hash.size == 0:
            return np.full(hashes.size, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._hash, _text(hashes)), self._hash.size - 1)
        return np.where(self._hash[at] == _text(hashes), at, -1)

    def ordinals(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of the first record of each sequence."""
        return self._ordinal[index]

    def begins(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the residues of each sequence are."""
        return self._begin[index]


def _text(hashes: NDArray[np.void]) -> NDArray[np.bytes_]:
    """Hashes as what numpy compares fast, in the order of their digests."""
    return np.ascontiguousarray(hashes).view("S16")


class LargePartition(Partition):
    """A partition of many runs. `rows` are those of kept records, and their ids are left in the spills."""

    def __init__(self, spilled: SpilledRecords, options: DatasetOptions, on_bytes: OnBytes) -> None:
        """
        Raises:
            DamagedSpillError: a spill is not what was written.
        """
        self._spilled = spilled
        self._options = options
        self._seen = SeenSequences()
        self._left_over_rows = empty_rows()
        self.counts = np.zeros(len(STATUS_CODES), dtype=np.int64)
        self.residues_in = 0
        residues = bytearray()
        kept: list[RecordRows] = []
        begin: list[NDArray[np.int64]] = []
        long: list[NDArray[np.void]] = []
        for run in spilled.runs():
            rows, at, first_pieces = self._read(run, residues)
            long.append(first_pieces)
            on_bytes(int(run.rows.residues.sum()))
            kept.append(rows)
            begin.append(at)
        self.cropped_copies = count_copies(np.concatenate(long))
        self.rows = empty_rows().followed_by(*kept)
        self.begin = np.concatenate(begin)
        self.tokens = np.frombuffer(residues, dtype=np.uint8)

    def _read(
        self, run: RecordRun, residues: bytearray
    ) -> tuple[RecordRows, NDArray[np.int64], NDArray[np.void]]:
        """Return the kept records of a run, without ids, where their residues begin, and the first pieces of long ones.

        What is new of their residues is added to `residues`.
        """
        options, rows = self._options, run.rows
        tokens, edges = run.tokens()
        cropped = first_piece_hashes(tokens, edges[1:], rows.hash, options.longest_piece)
        hashes = cropped if options.dedup == "cropped" else rows.hash
        candidates = np.flatnonzero(rows.status == KEPT)
        unknown = candidates[self._seen.find(hashes[candidates]) < 0]
        status, _ = mark_duplicates(
            np.full(unknown.size, KEPT, dtype=np.int8), hashes[unknown], rows.ordinal[unknown]
        )
        new = unknown[status == KEPT]
        sizes = (
            np.minimum(rows.residues[new], options.longest_piece)
            if options.long == "truncate"
            else rows.residues[new]
        )
        self._seen.add(hashes[new], rows.ordinal[new], len(residues) + np.cumsum(sizes) - sizes)
        found = np.empty(int(sizes.sum()), dtype=np.uint8)
        gather(tokens, edges[:-1][new], edges[:-1][new] + sizes, found)
        residues += found.data
        kept = candidates if options.dedup == "none" else new
        self.counts += np.bincount(rows.status, minlength=self.counts.size)
        self.counts[KEPT] -= candidates.size - kept.size
        self.counts[DUPLICATE] += candidates.size - kept.size
        self.residues_in += int(edges[-1])
        chosen = _without_ids(rows, kept)
        chosen.split = assign_splits(chosen, in_valid(cropped[kept], options.valid_fraction))
        first_pieces = cropped[kept][
            cropped_copy_candidates(chosen.status, chosen.residues, options)
        ]
        return chosen, self._seen.begins(self._seen.find(hashes[kept])), first_pieces

    def _hashes(self, run: RecordRun) -> NDArray[np.void]:
        """What is the same for duplicates; HASH[N]."""
        if (
            self._options.dedup != "cropped"
            or not (run.rows.residues > self._options.longest_piece).any()
        ):
            return run.rows.hash
        tokens, edges = run.tokens()
        return first_piece_hashes(tokens, edges[1:], run.rows.hash, self._options.longest_piece)

    def rows_to_write(
        self, to_write: NDArray[np.bool_], left_over: NDArray[np.int64]
    ) -> Iterator[RecordRows]:
        """See Partition."""
        kept, needed = self.rows, np.zeros(len(self.rows), dtype=np.bool_)
        needed[left_over] = True
        described: list[RecordRows] = []
        first = 0
        for run in self._spilled.runs():
            rows = run.rows
            mine = np.flatnonzero(rows.status == KEPT)
            if self._options.dedup != "none":
                original = self._seen.ordinals(self._seen.find(self._hashes(run)[mine]))
                copies = mine[original != rows.ordinal[mine]]
                rows.duplicate_of[copies] = original[original != rows.ordinal[mine]]
                rows.status = rows.status.copy()
                rows.status[copies] = DUPLICATE
                mine = mine[original == rows.ordinal[mine]]
            last = first + mine.size  # both are in input order
            for name in ("split", "shard", "bucket"):
                getattr(rows, name)[mine] = getattr(kept, name)[first:last]
            rows.shard_names = kept.shard_names
            described.append(rows.take(mine[needed[first:last]]))
            left = mine[~to_write[first:last]]
            first = last
            yield rows.take(np.delete(np.arange(len(rows)), left)) if left.size else rows
        self._left_over_rows = empty_rows().followed_by(*described)

    def take(self, row: NDArray[np.int64]) -> RecordRows:
        """See Partition."""
        return self._left_over_rows.take(
            np.searchsorted(self._left_over_rows.ordinal, self.rows.ordinal[row])
        )


def _without_ids(rows: RecordRows, chosen: NDArray[np.int64]) -> RecordRows:
    """The rows at `chosen`; ids are left out, of which there may be gigabytes."""
    columns: dict[str, Any] = {name: getattr(rows, name)[chosen] for name in _COLUMNS}
    return RecordRows(id=_no_ids(chosen.size), **columns)


def _no_ids(count: int) -> pa.Array:
    return pa.Array.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(bytes(8 * count + 8)), pa.py_buffer(b"")]
    )
