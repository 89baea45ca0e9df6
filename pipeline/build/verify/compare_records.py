"""`thdpack verify --deep`: compare every row of records/ with the buckets that hold its sequences.

1. Read records/, and check that it has exactly one row for each record.
2. Compare statuses, duplicates and splits with each other and with the manifest.
3. Read every bucket. Compare each sequence with its record's row: shard, bucket, number of
   residues, hash and unknown letters.
4. Check that each kept residue was found exactly once.
5. Join the pieces of each record that `--long split` cut, and check the hash of the joined record.
6. Check splits and `--dedup cropped` by the hash of each record's first piece. Cropping keeps only
   the first piece.

This takes about 60 bytes of memory for each record. Under `--long split`, long records are in
memory as well.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import sequence_hashes, split_of
from pipeline.build.verify.bucket_sequences import BucketSequences, bucket_sequences
from pipeline.build.verify.record_columns import (
    RecordColumns,
    read_record_columns,
    record_problem,
)
from pipeline.storage.folder import Folder
from pipeline.storage.open_folder import folder_of
from schemas.manifest import Manifest
from schemas.records import Status
from schemas.split_fractions import SplitFractions
from schemas.text.phrases import plural


def compare_records(dataset: str | Path, manifest: Manifest) -> list[str]:
    """Return one line for each contradiction between records/ and buckets.

    The caller must have verified the files' sizes and hashes.
    """
    folder = folder_of(dataset)
    records, problems = read_record_columns(folder, manifest)
    if problems:
        return problems
    return [
        *_check_statuses(records, manifest),
        *_SequenceComparison(records, manifest).run(folder),
    ]


def _check_statuses(records: RecordColumns, manifest: Manifest) -> list[str]:
    """Check statuses, duplicates and splits, from the rows alone."""
    problems: list[str] = []
    counts = np.bincount(records.status + 1, minlength=len(Status) + 1)[1:]
    for code, status in enumerate(Status):
        if counts[code] != manifest.records_by_status[status]:
            problems.append(
                f"records/: {plural(int(counts[code]), 'record')} {status}, "
                f"the manifest says {manifest.records_by_status[status]}"
            )
    kept = records.status == 0
    problems += _check_duplicates(records, kept, manifest)
    problems += record_problem(
        "has a split or shard although it was not kept",
        ~kept & ((records.split >= 0) | (records.shard >= 0)),
    )
    return problems


def _check_duplicates(
    records: RecordColumns, kept: NDArray[np.bool_], manifest: Manifest
) -> list[str]:
    """Check that each duplicate names an earlier kept record with the same hash, and that
    `duplicate_of` is null in all other rows."""
    dedup = manifest.options["dedup"]
    duplicate = records.status == list(Status).index(Status.DUPLICATE)
    problems = record_problem(
        "a duplicate has no duplicate_of, or another record has one",
        duplicate != (records.duplicate_of >= 0),
    )
    original = records.duplicate_of[duplicate]
    same = records.hash[original] == records.hash[duplicate]
    if dedup == "cropped":
        # only first pieces can be compared, because the dataset has no later residues
        shorter = np.minimum(records.residues[original], records.residues[duplicate])
        same |= shorter >= manifest.longest_piece
    same &= kept[original] & (original < np.flatnonzero(duplicate))
    problems += record_problem(
        "its duplicate_of is not an earlier kept record of the same hash",
        np.flatnonzero(duplicate)[~same],
    )
    if dedup != "none":
        what = "kept although an earlier record has the same hash"
        problems += _check_unique(records.hash, kept, what)
    return problems


def _check_unique(hashes: NDArray[np.void], kept: NDArray[np.bool_], what: str) -> list[str]:
    """Check that no two kept records have the same hash."""
    order = np.argsort(hashes[kept], order=("high", "low"), kind="stable")
    again = hashes[kept][order][1:] == hashes[kept][order][:-1]
    return record_problem(what, np.flatnonzero(kept)[order[1:][again]])


class _SequenceComparison:
    """Compares the sequences of all buckets with the rows of their records.

    expected: int64[N], number of each record's residues that buckets should hold
    found: int64[N], number of each record's residues found so far
    first_seen: int64[N], number of times that each record's first sequence was found so far
    first_piece: HASH[N], hash of the first piece of each record
    long_pieces: start and tokens of each piece, by the ordinal of the record that was split
    """

    def __init__(self, records: RecordColumns, manifest: Manifest) -> None:
        self._records = records
        self._manifest = manifest
        self._problems: list[str] = []
        self._kept = records.status == 0
        self._longest_piece = manifest.longest_piece
        self._split_long = manifest.options["long"] == "split"
        cropped = np.minimum(records.residues, self._longest_piece)
        in_buckets = records.residues if self._split_long else cropped
        self._expected = np.where(self._kept, in_buckets, 0)
        self._found = np.zeros_like(self._expected)
        self._first_seen = np.zeros(self._expected.size, dtype=np.int64)
        self._first_piece = records.hash.copy()
        self._long_pieces: dict[int, list[tuple[int, bytes]]] = {}

    def run(self, dataset: Folder) -> list[str]:
        """Read all shards; return one line for each problem."""
        names = [entry.name for entries in self._manifest.shards.values() for entry in entries]
        for shard, name in enumerate(names):
            first_bucket = 0
            reader = pa.ipc.open_file(dataset.buffer(name))
            for i in range(reader.num_record_batches):
                batch = reader.get_batch(i)
                sequences = bucket_sequences(batch, self._manifest)
                ordinal = sequences.ordinal
                if ordinal.size and (ordinal.min() < 0 or ordinal.max() >= self._expected.size):
                    most = self._expected.size - 1
                    self._problems.append(f"{name}: a bucket names a record outside 0..{most}")
                    return self._problems
                self._check_positions(sequences, shard, name, first_bucket)
                self._check_residues(sequences)
                first_bucket += batch.num_rows
        self._wrong(
            "its residues are not all in buckets exactly once", self._found != self._expected
        )
        self._wrong(
            "its first sequence is not in buckets exactly once", self._first_seen != self._kept
        )
        self._check_joined_pieces()
        self._check_first_pieces()
        return self._problems

    def _wrong(self, what: str, wrong: NDArray[np.bool_] | NDArray[np.int64]) -> None:
        self._problems += record_problem(what, wrong)

    def _check_positions(
        self, sequences: BucketSequences, shard: int, name: str, first_bucket: int
    ) -> None:
        """Check that each sequence belongs to a kept record, and that its start is valid.

        For first sequences, also check that the record's row names this shard and bucket.

        Args:
            shard: index of the shard.
            first_bucket: row of the batch's first bucket in the shard.
        """
        records, ordinal = self._records, sequences.ordinal
        first = sequences.start == 0
        np.add.at(self._first_seen, ordinal[first], 1)
        self._wrong(
            f"{name} holds a record that was not kept",
            ordinal[~self._kept[ordinal]],
        )
        elsewhere = (records.shard[ordinal] != shard) | (
            records.bucket[ordinal] != sequences.bucket + first_bucket
        )
        self._wrong("not in the shard and bucket that its row names", ordinal[first & elsewhere])
        self._wrong(
            "a piece does not start at a multiple of max_seq_len - 2",
            ordinal[sequences.start % self._longest_piece != 0],
        )

    def _check_residues(self, sequences: BucketSequences) -> None:
        """Check size, hash and unknown letters of each sequence. Count the residues found."""
        records, ordinal = self._records, sequences.ordinal
        size = np.diff(sequences.ends, prepend=0)
        np.add.at(self._found, ordinal, size)
        left = self._expected[ordinal] - sequences.start
        self._wrong(
            "a piece does not have the expected number of residues",
            ordinal[size != np.minimum(left, self._longest_piece)],
        )
        whole = records.residues[ordinal] == size
        hashes = sequence_hashes(sequences.tokens, sequences.ends)
        first = sequences.start == 0
        self._first_piece[ordinal[first]] = hashes[first]
        self._wrong(
            "its residues in the bucket have another hash",
            ordinal[whole & (hashes != records.hash[ordinal])],
        )
        self._wrong(
            "its row has another number of unknown letters than its sequence in the bucket",
            ordinal[whole & (self._count_unknown(sequences) != records.unknown[ordinal])],
        )
        if self._split_long:
            for k in np.flatnonzero(~whole).tolist():
                end = sequences.ends[k]
                piece = sequences.tokens[end - size[k] : end].tobytes()
                pieces = self._long_pieces.setdefault(int(ordinal[k]), [])
                pieces.append((int(sequences.start[k]), piece))

    def _count_unknown(self, sequences: BucketSequences) -> NDArray[np.int64]:
        """Return the number of `<unk>` tokens in each sequence, int64[N]."""
        is_unknown = sequences.tokens == self._manifest.vocabulary_object.unk
        counts: NDArray[np.int64] = np.add.reduceat(
            np.append(is_unknown, False).astype(np.int64), np.append(0, sequences.ends[:-1])
        )
        return counts

    def _check_joined_pieces(self) -> None:
        """Check that the joined pieces of each split record have the record's hash."""
        wrong = []
        for ordinal, pieces in self._long_pieces.items():
            joined = np.frombuffer(b"".join(piece for _, piece in sorted(pieces)), dtype=np.uint8)
            found = sequence_hashes(joined, np.array([joined.size]))[0]
            if found != self._records.hash[ordinal]:
                wrong.append(ordinal)
        self._wrong("its joined pieces have another hash", np.array(wrong, dtype=np.int64))

    def _check_first_pieces(self) -> None:
        """Check splits and `--dedup cropped` by the hashes of the kept records' first pieces."""
        records, kept, options = self._records, self._kept, self._manifest.options
        fractions = SplitFractions.parse(str(options["split"]))
        wrong = kept & (records.split != split_of(self._first_piece, fractions))
        self._wrong("not in the split that the hash of its first piece decides", wrong)
        if options["dedup"] == "cropped":
            what = "kept although an earlier record is the same after cropping"
            self._problems += _check_unique(self._first_piece, kept, what)
