"""Check a shard, and compare each of its sequences with its record's row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import (
    shuffle_keys,
    split_hashes,
    split_of,
    variant_seed,
    window_starts,
)
from pipeline.build.tasks import OnBytes
from pipeline.build.verify.bucket_sequences import BucketSequences, bucket_sequences
from pipeline.build.verify.check_shards import check_shard
from pipeline.build.verify.deep_job import DeepJob
from pipeline.build.verify.findings import Findings
from pipeline.build.verify.long_records import LongRecords
from pipeline.build.verify.read_rows import shard_key
from pipeline.build.verify.row_file import rows_at, same_hash
from schemas.manifest_entries import ShardEntry
from schemas.records import STATUS_CODES, Status
from schemas.shard import SPLITS
from schemas.splitmix import mix


def not_seen(variant: int) -> str:
    """Return the message for a record whose first sequence is missing or repeated."""
    return f"its first sequence is not in {buckets_of(variant)} exactly once"


def buckets_of(variant: int) -> str:
    """Return the words for a variant's buckets in messages."""
    return f"buckets of variant {variant}" if variant else "buckets"


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Check one shard. If `compare` is True, also compare its sequences with the rows."""

    job: DeepJob
    variant: int
    split: str
    entry: ShardEntry
    compare: bool


@dataclass(slots=True)
class ShardResult:
    """Result of a task.

    problems: faults of the shard
    outside: message if a bucket names a record that does not exist
    pieces: results of `LongRecords.copy`
    variant: variant of the shard
    first_sequences: number of sequences that are the first of their record
    fingerprint: sum of a hash of each sequence's record, start and residues, modulo 2^64
    """

    problems: list[str] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    outside: list[str] = field(default_factory=list)
    pieces: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    variant: int = 0
    first_sequences: int = 0
    fingerprint: int = 0


def compare_shard(task: ShardTask, on_bytes: OnBytes, *, durable: bool) -> ShardResult:
    """Check a shard, and compare it with the rows. `executor.Work` explains the arguments."""
    comparison = _Comparison(task) if task.compare else None
    problems = check_shard(
        task.job.dataset,
        task.entry,
        task.job.rules,
        on_batch=comparison.compare if comparison else None,
    )
    on_bytes(task.entry.bytes)
    result = comparison.result() if comparison else ShardResult()
    result.problems = problems
    return result


class _Comparison:
    """Compares the sequences of a shard with the rows of their records."""

    def __init__(self, task: ShardTask) -> None:
        self._job = task.job
        self._rows = task.job.rows
        self._name = task.entry.name
        self._key = np.uint64(shard_key(task.entry.name))
        self._split = SPLITS.index(task.split)
        self._variant = task.variant
        self._seed = variant_seed(task.job.seed, task.variant)
        self._first_sequences = 0
        self._fingerprint = 0
        self._findings = Findings()
        self._outside: list[str] = []
        copies = task.job.split_long and task.variant == 0
        self._long = LongRecords(task.job) if copies else None
        self._pieces: list[NDArray[np.int64]] = []

    def result(self) -> ShardResult:
        """Return the result of all calls of `compare`."""
        pieces = np.concatenate([np.empty(0, dtype=np.int64), *self._pieces])
        return ShardResult(
            findings=self._findings,
            outside=self._outside,
            pieces=pieces,
            variant=self._variant,
            first_sequences=self._first_sequences,
            fingerprint=self._fingerprint,
        )

    def compare(self, batch: pa.RecordBatch, first_bucket: int) -> None:
        """Compare the sequences of a batch.

        Args:
            first_bucket: row of the batch's first bucket in the shard.
        """
        sequences = bucket_sequences(batch, self._job.rules)
        ordinal, count = sequences.ordinal, self._job.records
        if ordinal.size and (ordinal.min() < 0 or ordinal.max() >= count):
            self._outside = [f"{self._name}: a bucket names a record outside 0..{count - 1}"]
            return
        rows = rows_at(self._rows, ordinal)
        self._check_places(sequences, rows, first_bucket)
        self._check_splits(sequences, rows)
        self._check_residues(sequences, rows)
        keys = mix(mix(ordinal.astype(np.uint64)) ^ sequences.start.astype(np.uint64))
        hashes = mix(keys ^ sequences.hash["low"].astype(np.uint64))
        self._fingerprint += int(hashes.sum())  # a Python int: numpy would warn of an overflow

    def _check_places(
        self, sequences: BucketSequences, rows: NDArray[Any], first_bucket: int
    ) -> None:
        """Check that each sequence belongs to a kept record, and that the record's row names the
        bucket of the first sequence. Mark the records whose first sequence was seen."""
        ordinal, first = sequences.ordinal, self._is_first(sequences)
        kept = rows["status"] == STATUS_CODES.index(Status.KEPT)
        add = self._findings.add
        add(f"{self._name} holds a record that was not kept", ordinal[~kept])
        add("in a shard of another split than its row", ordinal[rows["split"] != self._split])
        if self._variant == 0:  # records/ has the places of this variant
            row = sequences.bucket + first_bucket
            here = (rows["shard"] == self._key) & (rows["bucket"] == row)
            add("not in the shard and bucket that its row names", ordinal[first & ~here])
            # only this task marks these records, because their rows name this shard
            seen = np.sort(ordinal[first & here])
            self._rows["seen"][seen] = 1
        else:
            seen = np.sort(ordinal[first])
            self._job.seen(self._variant)[seen] = 1
        self._first_sequences += seen.size
        add(not_seen(self._variant), seen[1:][seen[1:] == seen[:-1]])

    def _is_first(self, sequences: BucketSequences) -> NDArray[np.bool_]:
        """Return whether each sequence is the first of its record, bool[N]."""
        first: NDArray[np.bool_] = sequences.start == 0
        return first | (self._job.long == "crop")  # a window may begin anywhere

    def _windows(self, ordinal: NDArray[np.int64], rows: NDArray[Any]) -> NDArray[np.int64]:
        """Return the expected start of each sequence under --long crop, int64[N]."""
        keys = shuffle_keys(rows["hash"], ordinal, np.zeros_like(ordinal), self._seed)
        return window_starts(keys, rows["residues"].astype(np.int64), self._job.longest_piece)

    def _check_splits(self, sequences: BucketSequences, rows: NDArray[Any]) -> None:
        """Check that each record is in the split that its cluster determines. For a record without
        a cluster, the hash of its first piece (its first max_seq_len - 2 residues) determines the
        split. This piece is not known if --long crop kept a random window of the record.
        """
        first = np.flatnonzero(self._is_first(sequences))
        hashes, ordinal = sequences.hash[first], sequences.ordinal[first]
        cluster, known = rows["cluster"][first], ~self._job.has_random_window(rows[first])
        wrong = rows["split"][first] != split_of(split_hashes(hashes, cluster), self._job.splits)
        add = self._findings.add
        add(
            "not in the split that the hash of its first piece decides",
            ordinal[wrong & known & (cluster == 0)],
        )
        add("not in the split that its cluster decides", ordinal[wrong & (cluster != 0)])
        if self._job.compares_first_pieces and self._variant == 0:
            self._job.first_pieces[ordinal[known]] = hashes[known]

    def _check_residues(self, sequences: BucketSequences, rows: NDArray[Any]) -> None:
        """Check start, size, hash and unknown letters of each sequence."""
        ordinal, longest = sequences.ordinal, self._job.longest_piece
        residues, size = rows["residues"], sequences.end - sequences.begin
        in_buckets = residues if self._job.split_long else np.minimum(residues, longest)
        aligned = sequences.start % longest == 0
        add = self._findings.add
        if self._job.long == "crop":
            expected = self._windows(ordinal, rows)
            add("its window is not where the seed puts it", ordinal[sequences.start != expected])
            fits = size == in_buckets
        else:
            fits = size == np.minimum(in_buckets - sequences.start, longest)
            add("a piece does not start at a multiple of max_seq_len - 2", ordinal[~aligned])
        add("a piece does not have the expected number of residues", ordinal[~fits])
        whole = residues == size
        add(
            "its residues in the bucket have another hash",
            ordinal[whole & ~same_hash(sequences.hash, rows["hash"])],
        )
        unknown = sequences.unknown
        add(
            "its row has another number of unknown letters than its sequence in the bucket",
            ordinal[np.where(whole, unknown != rows["unknown"], unknown > rows["unknown"])],
        )
        if self._long is not None:
            kept = rows["status"] == STATUS_CODES.index(Status.KEPT)
            if self._job.sampled:
                # LongRecords has no room for records whose row names no shard
                kept &= rows["shard"] != 0
            which = np.flatnonzero(kept & (residues > longest) & aligned & fits)
            self._pieces.append(self._long.copy(sequences, which))
