"""Read all of records/ into arrays. A record takes about 60 bytes of memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.storage.folder import Folder
from schemas.manifest import Manifest
from schemas.records import Status
from schemas.shard import SPLITS


@dataclass(slots=True, kw_only=True)
class RecordColumns:
    """Columns of records/ for N records. The index into each array is a record's ordinal.

    hash:         HASH[N]
    status:       index into `Status`
    split:        index into SPLITS
    shard:        index into the manifest's shards, numbered across all splits
    split, shard, bucket, duplicate_of: -1 for null
    """

    residues: NDArray[np.int64]
    unknown: NDArray[np.int64]
    hash: NDArray[np.void]
    status: NDArray[np.int8]
    split: NDArray[np.int8]
    shard: NDArray[np.int32]
    bucket: NDArray[np.int64]
    duplicate_of: NDArray[np.int64]

    @classmethod
    def zeros(cls, count: int) -> RecordColumns:
        """Return columns of `count` records, filled with zeros."""
        return cls(
            residues=np.zeros(count, dtype=np.int64),
            unknown=np.zeros(count, dtype=np.int64),
            hash=np.zeros(count, dtype=HASH),
            status=np.zeros(count, dtype=np.int8),
            split=np.zeros(count, dtype=np.int8),
            shard=np.zeros(count, dtype=np.int32),
            bucket=np.zeros(count, dtype=np.int64),
            duplicate_of=np.zeros(count, dtype=np.int64),
        )

    def fill(
        self, ordinal: NDArray[np.int64], table: pa.Table, splits: list[str], shards: list[str]
    ) -> None:
        """Copy a file's rows to the indices `ordinal`, int64[rows]."""
        self.residues[ordinal] = table.column("residues").to_numpy()
        self.unknown[ordinal] = table.column("unknown").to_numpy()
        if ordinal.size:
            digests = [bytes(digest) for digest in table.column("hash").to_pylist()]
            self.hash[ordinal] = np.array(digests, dtype="S16").view(HASH)
        self.status[ordinal] = _codes(table.column("status"), list(Status))
        self.split[ordinal] = _codes(table.column("split"), splits)
        self.shard[ordinal] = _codes(table.column("shard"), shards)
        self.bucket[ordinal] = table.column("bucket").fill_null(-1).to_numpy()
        self.duplicate_of[ordinal] = table.column("duplicate_of").fill_null(-1).to_numpy()


def read_record_columns(dataset: Folder, manifest: Manifest) -> tuple[RecordColumns, list[str]]:
    """Read records/, and check that it has exactly one row for each record.

    Returns:
        The columns, and one line for each problem. If there is a problem, columns may be
        incomplete.
    """
    total = sum(manifest.records_by_status.values())
    columns = RecordColumns.zeros(total)
    rows = np.zeros(total, dtype=np.int64)
    shards = [entry.name for entries in manifest.shards.values() for entry in entries]
    sources: Counter[str] = Counter()
    for entry in manifest.records:
        table = pq.read_table(pa.BufferReader(dataset.buffer(entry.name)))
        if table.num_rows != entry.rows:
            return columns, [f"{entry.name}: {table.num_rows} rows, the manifest says {entry.rows}"]
        table = table.cast(manifest.records_schema)
        ordinal = table.column("ordinal").to_numpy()
        if ordinal.size and (ordinal.min() < 0 or ordinal.max() >= total):
            return columns, [f"{entry.name}: an ordinal is outside 0..{total - 1}"]
        rows += np.bincount(ordinal, minlength=total)
        columns.fill(ordinal, table, list(SPLITS), shards)
        sources.update(table.column("source").to_pylist())
    problems = record_problem("a record does not have exactly one row", rows != 1)
    for expected in manifest.inputs:
        if sources[expected.name] != expected.records:
            problems.append(
                f"records/: {sources[expected.name]} records from {expected.name}, "
                f"the manifest says {expected.records}"
            )
    return columns, problems


def record_problem(what: str, wrong: NDArray[np.bool_] | NDArray[np.int64]) -> list[str]:
    """Return a line that names a problem and the records that have it; [] if no record has it.

    Args:
        what: description of the problem.
        wrong: bool[N], mask of the records that have the problem, or their ordinals.
    """
    ordinals = np.flatnonzero(wrong) if wrong.dtype == np.bool_ else wrong
    if not ordinals.size:
        return []
    shown = ", ".join(str(ordinal) for ordinal in ordinals[:5].tolist())
    more = ", …" if ordinals.size > 5 else ""
    return [f"records/: {what}: {ordinals.size} records (ordinal {shown}{more})"]


def _codes(column: pa.ChunkedArray, words: list[Any]) -> NDArray[np.int32]:
    """Return a dictionary column as indices into `words`; -1 for null, -2 for any other word."""
    index = {str(word): i for i, word in enumerate(words)}
    parts = [np.empty(0, dtype=np.int32)]
    for chunk in column.chunks:
        known = np.array(
            [index.get(word, -2) for word in chunk.dictionary.to_pylist()] + [-1], dtype=np.int32
        )
        parts.append(known[chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
    return np.concatenate(parts)
