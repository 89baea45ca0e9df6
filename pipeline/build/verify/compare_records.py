"""Compare every row of records/ with the buckets that its sequences went to: `thdpack verify --deep`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import HASH, in_valid, sequence_hashes
from pipeline.storage.folder import Folder
from pipeline.storage.open_folder import folder_of
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.records import Status, records_schema


def compare_records(dataset: str | Path, manifest: Manifest) -> list[str]:
    """What records/ and the buckets of a dataset say differently, whose files were verified."""
    return _RecordComparison(folder_of(dataset), manifest).check()


@dataclass(slots=True)
class _Records:
    """All rows of records/, by ordinal."""

    residues: NDArray[np.int64]
    unknown: NDArray[np.int64]
    hash: NDArray[np.void]
    status: NDArray[np.int8]
    split: NDArray[np.int8]
    shard: NDArray[np.int32]
    bucket: NDArray[np.int64]
    duplicate_of: NDArray[np.int64]


class _RecordComparison:
    """Compares every record with what became of it."""

    def __init__(self, dataset: Folder, manifest: Manifest) -> None:
        self._dataset = dataset
        self._manifest = manifest
        self._problems: list[str] = []
        self._shards = [
            (split, entry) for split, entries in manifest.shards.items() for entry in entries
        ]

    def check(self) -> list[str]:
        records = self._read_records()
        if records is None:
            return self._problems
        kept = records.status == 0
        self._check_fates(records, kept)
        self._check_sequences(records, kept)
        return self._problems

    def _wrong(self, what: str, ordinals: NDArray[np.bool_] | NDArray[np.int64]) -> None:
        """A line that names the first few of the records concerned."""
        found = np.flatnonzero(ordinals) if ordinals.dtype == np.bool_ else ordinals
        if found.size:
            shown = ", ".join(str(o) for o in found[:5].tolist()) + (
                ", …" if found.size > 5 else ""
            )
            self._problems.append(f"records/: {what}: {found.size} records (ordinal {shown})")

    def _read_records(self) -> _Records | None:
        """None if the rows are not one for each record; that is then a problem."""
        total = sum(self._manifest.records_by_status.values())
        seen = np.zeros(total, dtype=np.int64)
        names = [entry.name for _, entry in self._shards]
        records = _Records(
            *(
                np.zeros(total, dtype=t)
                for t in (np.int64, np.int64, HASH, np.int8, np.int8, np.int32, np.int64, np.int64)
            )
        )
        sources = {entry.name: 0 for entry in self._manifest.inputs}
        for entry in self._manifest.records:
            table = pq.read_table(pa.BufferReader(self._dataset.buffer(entry.name)))
            if table.num_rows != entry.rows:
                self._problems.append(
                    f"{entry.name}: {table.num_rows} rows, the manifest says {entry.rows}"
                )
                return None
            table = table.cast(records_schema())
            ordinal = table.column("ordinal").to_numpy()
            if ordinal.size and (ordinal.min() < 0 or ordinal.max() >= total):
                self._problems.append(f"{entry.name}: an ordinal is outside 0..{total - 1}")
                return None
            seen += np.bincount(ordinal, minlength=total)
            records.residues[ordinal] = table.column("residues").to_numpy()
            records.unknown[ordinal] = table.column("unknown").to_numpy()
            records.hash[ordinal] = (
                np.array([bytes(h) for h in table.column("hash").to_pylist()], dtype="S16").view(
                    HASH
                )
                if len(ordinal)
                else []
            )
            records.status[ordinal] = _codes(table.column("status"), list(Status))
            records.split[ordinal] = _codes(table.column("split"), list(self._manifest.splits))
            records.shard[ordinal] = _codes(table.column("shard"), names)
            records.bucket[ordinal] = table.column("bucket").fill_null(-1).to_numpy()
            records.duplicate_of[ordinal] = table.column("duplicate_of").fill_null(-1).to_numpy()
            for name in table.column("source").to_pylist():
                sources[name] = sources.get(name, 0) + 1
        self._wrong("not exactly one row", seen != 1)
        for expected in self._manifest.inputs:
            if sources.get(expected.name) != expected.records:
                self._problems.append(
                    f"records/: {sources.get(expected.name)} records from {expected.name}, the manifest says {expected.records}"
                )
        return None if self._problems else records

    def _check_fates(self, records: _Records, kept: NDArray[np.bool_]) -> None:
        """Statuses, duplicates and splits, from the rows alone."""
        options = self._manifest.options
        counts = np.bincount(records.status + 1, minlength=len(Status) + 1)[1:]
        for code, status in enumerate(Status):
            if counts[code] != self._manifest.records_by_status[status]:
                self._problems.append(
                    f"records/: {counts[code]} records {status}, the manifest says {self._manifest.records_by_status[status]}"
                )
        duplicate = records.status == list(Status).index(Status.DUPLICATE)
        self._wrong(
            "a duplicate names no record, or another one has a duplicate_of",
            duplicate != (records.duplicate_of >= 0),
        )
        original = records.duplicate_of[duplicate]
        same = records.hash[original] == records.hash[duplicate]
        if (
            options["dedup"] == "cropped"
        ):  # what both had beyond their first piece is not in the dataset
            same |= (
                np.minimum(records.residues[original], records.residues[duplicate])
                >= self._manifest.longest_piece
            )
        same &= kept[original] & (original < np.flatnonzero(duplicate))
        self._wrong(
            "a duplicate_of is not an earlier kept record of the same hash",
            np.flatnonzero(duplicate)[~same],
        )
        if options["dedup"] != "none":
            self._check_unique(
                records.hash, kept, "kept although an earlier record has the same hash"
            )
        self._wrong(
            "placed although not kept", ~kept & ((records.split >= 0) | (records.shard >= 0))
        )

    def _check_unique(self, hashes: NDArray[np.void], kept: NDArray[np.bool_], what: str) -> None:
        order = np.argsort(hashes[kept], order=("high", "low"), kind="stable")
        again = hashes[kept][order][1:] == hashes[kept][order][:-1]
        self._wrong(what, np.flatnonzero(kept)[order[1:][again]])

    def _check_first_pieces(
        self, records: _Records, kept: NDArray[np.bool_], first: NDArray[np.void]
    ) -> None:
        """Splits, and duplicates after cropping; first: HASH[N], of the first piece of each kept record, as buckets hold it."""
        options = self._manifest.options
        fraction = float(options["valid_fraction"] or 0)
        wrong = kept & (records.split != in_valid(first, fraction))
        if (
            wrong.any() and (kept & (records.split != in_valid(records.hash, fraction))).any()
        ):  # once, the whole record's hash decided
            self._wrong("not in the split that the hash of its first piece says", wrong)
        if options["dedup"] == "cropped":
            self._check_unique(
                first, kept, "kept although an earlier record is the same after cropping"
            )

    def _check_sequences(self, records: _Records, kept: NDArray[np.bool_]) -> None:
        """Each kept residue is in a bucket exactly once, and its record points there."""
        most = self._manifest.longest_piece
        split_long = self._manifest.options["long"] == "split"
        cropped = np.minimum(records.residues, most)
        expected = np.where(kept, records.residues if split_long else cropped, 0)
        found, first_seen = np.zeros_like(expected), np.zeros(expected.size, dtype=np.int64)
        first_piece = records.hash.copy()
        long_pieces: dict[int, list[tuple[int, bytes]]] = {}
        for number, (_, entry) in enumerate(self._shards):
            at = 0
            reader = pa.ipc.open_file(self._dataset.buffer(entry.name))
            for i in range(reader.num_record_batches):
                batch = reader.get_batch(i)
                tokens, ends, ordinal, start, bucket = _sequences_of(batch, self._manifest)
                size = np.diff(ends, prepend=0)
                if ordinal.size and (ordinal.min() < 0 or ordinal.max() >= expected.size):
                    self._problems.append(
                        f"{entry.name}: a bucket names a record outside 0..{expected.size - 1}"
                    )
                    return
                np.add.at(found, ordinal, size)
                first = start == 0
                np.add.at(first_seen, ordinal[first], 1)
                self._wrong(
                    f"{entry.name} holds a record that was not kept, or of the other split",
                    ordinal[~kept[ordinal]],
                )
                self._wrong(
                    "not in the shard and bucket that its row names",
                    ordinal[
                        first
                        & (
                            (records.shard[ordinal] != number)
                            | (records.bucket[ordinal] != bucket + at)
                        )
                    ],
                )
                self._wrong(
                    "a piece starts at no multiple of max_seq_len - 2", ordinal[start % most != 0]
                )
                self._wrong(
                    "a piece has not the residues that it should",
                    ordinal[size != np.minimum(expected[ordinal] - start, most)],
                )
                whole = records.residues[ordinal] == size
                hashes = sequence_hashes(tokens, ends)
                first_piece[ordinal[first]] = hashes[first]
                self._wrong(
                    "its residues in the bucket have another hash",
                    ordinal[whole & (hashes != records.hash[ordinal])],
                )
                unknown = np.add.reduceat(
                    np.append(tokens == self._manifest.vocabulary_object.unk, False).astype(
                        np.int64
                    ),
                    np.append(0, ends[:-1]),
                )
                self._wrong(
                    "its unknown letters in the bucket are not as many",
                    ordinal[whole & (unknown != records.unknown[ordinal])],
                )
                if split_long:
                    for k in np.flatnonzero(~whole).tolist():
                        piece = tokens[ends[k] - size[k] : ends[k]].tobytes()
                        long_pieces.setdefault(int(ordinal[k]), []).append((int(start[k]), piece))
                at += batch.num_rows
        self._wrong("its residues are not all in buckets exactly once", found != expected)
        self._wrong("its first sequence is not in buckets exactly once", first_seen != kept)
        self._check_long(records, long_pieces)
        self._check_first_pieces(records, kept, first_piece)

    def _check_long(self, records: _Records, pieces: dict[int, list[tuple[int, bytes]]]) -> None:
        """Cut records have their hash when put together again."""
        wrong = []
        for ordinal, parts in pieces.items():
            joined = np.frombuffer(b"".join(piece for _, piece in sorted(parts)), dtype=np.uint8)
            if sequence_hashes(joined, np.array([joined.size]))[0] != records.hash[ordinal]:
                wrong.append(ordinal)
        self._wrong("its pieces put together have another hash", np.array(wrong, dtype=np.int64))


def _codes(column: pa.ChunkedArray, words: list[Any]) -> NDArray[np.int32]:
    """A dictionary column as indices into `words`; -1 for null, -2 for a word that is not there."""
    index = {str(word): i for i, word in enumerate(words)}
    parts = [np.empty(0, dtype=np.int32)]
    for chunk in column.chunks:
        known = np.array(
            [index.get(word, -2) for word in chunk.dictionary.to_pylist()] + [-1], dtype=np.int32
        )
        parts.append(known[chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
    return np.concatenate(parts)


def _sequences_of(
    batch: pa.RecordBatch, manifest: Manifest
) -> tuple[
    NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]
]:
    """The real sequences of a batch without specials and padding: tokens, ends, and for each its ordinal, start and bucket."""
    vocabulary = manifest.vocabulary_object
    ids = batch.column("input_ids").values.to_numpy().reshape(batch.num_rows, manifest.capacity)
    cu, cu_at = (
        batch.column("cu_seqlens").values.to_numpy(),
        batch.column("cu_seqlens").offsets.to_numpy(),
    )
    parts, buckets = [], []
    for b, count in enumerate(batch.column("num_seqs").to_numpy().tolist()):
        edges = cu[cu_at[b] : cu_at[b] + count + 1]
        spans = [ids[b, x:y] for x, y in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        parts += [span[1 : int(np.flatnonzero(span == vocabulary.eos)[-1])] for span in spans]
        buckets += [b] * count
    if len(parts) != len(batch.column("record").values):
        raise DatasetError("a shard changed while it was read")
    return (
        np.concatenate([*parts, np.empty(0, dtype=np.uint8)]),
        np.cumsum([part.size for part in parts], dtype=np.int64),
        batch.column("record").values.to_numpy(),
        batch.column("start").values.to_numpy().astype(np.int64),
        np.array(buckets, dtype=np.int64),
    )
