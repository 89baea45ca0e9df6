"""Damage that looks like a bug of the writer: wrong rows in files whose hashes are right."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline.build.retire.retired_files import retired_problems
from pipeline.build.verify.check_shards import check_files, check_totals, verify_tasks
from pipeline.build.verify.compare_records import compare_records
from pipeline.executors.executor import SerialExecutor
from pipeline.storage.open_folder import folder_of
from schemas.manifest import Manifest
from schemas.manifest_entries import RecordsEntry, ShardEntry
from schemas.shard import shard_schema
from tests.helpers.data.corpus import read_buckets, read_manifest
from tests.helpers.oracles.slow_split import split_of_hash

Row = dict[str, Any]
MOST = 62
"""Largest number of residues in a sequence."""
SPLIT_OPTION = "train=0.5,valid=0.3,test=0.2"
"""Value of --split."""


def shallow(dataset: Path) -> list[str]:
    """Return the problems that `thdpack verify` finds without --deep."""
    manifest = read_manifest(dataset)
    problems = check_totals(manifest) + retired_problems(folder_of(dataset), manifest)
    for task in verify_tasks(manifest, folder_of(dataset), folder_of(dataset)):
        problems += check_files(task, lambda _: None).problems
    return problems


def deep(dataset: Path) -> list[str]:
    """Return the contradictions that only `thdpack verify --deep` finds."""
    with tempfile.TemporaryDirectory() as work:
        faults, contradictions = compare_records(
            folder_of(dataset), read_manifest(dataset), Path(work), SerialExecutor()
        )
        faults = retired_problems(folder_of(dataset), read_manifest(dataset)) + faults
    assert faults == shallow(dataset)
    return contradictions


def save_manifest(dataset: Path, manifest: Manifest) -> None:
    (dataset / "manifest.json").write_text(manifest.to_json())


def update_entries(dataset: Path, names: Sequence[str], **more: Any) -> None:
    """Write the sizes and hashes of changed files into the manifest.

    Args:
        more: other fields of the manifest to change.
    """
    manifest = read_manifest(dataset)

    def updated(entry: Any) -> Any:
        if entry.name not in names:
            return entry
        content = (dataset / entry.name).read_bytes()
        digest = xxhash.xxh3_128_hexdigest(content)
        return replace(entry, bytes=len(content), xxh3_128=digest)

    shards: dict[str, tuple[ShardEntry, ...]] = {
        split: tuple(map(updated, entries)) for split, entries in manifest.shards.items()
    }
    records: tuple[RecordsEntry, ...] = tuple(map(updated, manifest.records))
    save_manifest(dataset, replace(manifest, shards=shards, records=records, **more))


class OpenDataset:
    """All rows of a small dataset. A test can change these rows.

    rows: rows of records/, by ordinal
    buckets: buckets with their split, shard and row
    """

    def __init__(self, dataset: Path) -> None:
        self.path = dataset
        self._tables = {
            entry.name: pq.read_table(dataset / entry.name)
            for entry in read_manifest(dataset).records
        }
        self._rows_of = {name: table.to_pylist() for name, table in self._tables.items()}
        rows = [row for rows in self._rows_of.values() for row in rows]
        self.rows: list[Row] = sorted(rows, key=lambda row: int(row["ordinal"]))
        self.buckets = read_buckets(dataset)

    def save(self) -> None:
        """Write all files, their hashes, and the number of records of each status."""
        for name, rows in self._rows_of.items():
            pq.write_table(
                pa.Table.from_pylist(rows, schema=self._tables[name].schema), self.path / name
            )
        manifest = read_manifest(self.path)
        schema = shard_schema(manifest.capacity)
        for entry in (entry for entries in manifest.shards.values() for entry in entries):
            rows = [bucket for bucket in self.buckets if bucket["shard"] == entry.name]
            rows = [{name: row[name] for name in schema.names} for row in rows]
            with pa.ipc.new_file(self.path / entry.name, schema) as writer:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema), max_chunksize=2)
        counts = {
            status: sum(row["status"] == status for row in self.rows)
            for status in manifest.records_by_status
        }
        names = [entry.name for entry in manifest.files()]
        update_entries(self.path, names, records_by_status=counts)

    def all(self, **wanted: Any) -> list[Row]:
        """Return the rows with these values."""
        return [
            row for row in self.rows if all(row[name] == value for name, value in wanted.items())
        ]

    def place(self, row: Row, start: int = 0) -> tuple[Row, int]:
        """Return the bucket of a record's sequence, and the sequence's number in the bucket."""
        return next(
            (bucket, i)
            for bucket in self.buckets
            for i, found in enumerate(zip(bucket["record"], bucket["start"], strict=True))
            if found == (row["ordinal"], start)
        )

    def residues(self, row: Row, start: int = 0) -> list[int]:
        """Return the residue tokens of a record's sequence."""
        bucket, i = self.place(row, start)
        tokens: list[int] = bucket["input_ids"]
        return tokens[bucket["cu_seqlens"][i] + 1 : bucket["cu_seqlens"][i + 1] - 1]

    def put(self, row: Row, residues: Sequence[int], start: int = 0) -> None:
        """Replace the residue tokens of a record's sequence. Their number must stay the same."""
        bucket, i = self.place(row, start)
        assert len(residues) == len(self.residues(row, start))
        begin = bucket["cu_seqlens"][i] + 1
        bucket["input_ids"][begin : begin + len(residues)] = residues


def leave_out(row: Row, status: str = "filtered", duplicate_of: int | None = None) -> None:
    """Turn a kept record's row into the row of a record that was left out."""
    row.update(status=status, duplicate_of=duplicate_of, split=None, shard=None, bucket=None)


def hash_of(residues: Sequence[int]) -> bytes:
    return xxhash.xxh3_128_digest(bytes(residues))


def laws(dataset: OpenDataset) -> set[str]:
    """Save the dataset, and return the rules that the deep check finds broken."""
    dataset.save()
    assert shallow(dataset.path) == []
    return {law(line) for line in deep(dataset.path)}


def law(line: str) -> str:
    """Return the broken rule that a line of output reports, without numbers and file names."""
    line = re.sub(r": \d+ records \(ordinal .*", "", line.removeprefix("records/: "))
    return re.sub(r"\S+\.(arrow|parquet)", "FILE", line)


def split_of(residues: Sequence[int]) -> str:
    return split_of_hash(hash_of(residues), SPLIT_OPTION)


def other_residues(count: int, *, splits: Sequence[str]) -> list[int]:
    """Return random residue tokens whose hash puts them in one of `splits`."""
    rng = np.random.default_rng(1)
    while True:
        found: list[int] = rng.integers(4, 24, count).tolist()
        if split_of(found) in splits:
            return found


def two(dataset: OpenDataset, rows: list[Row], *, one_bucket: bool = False) -> tuple[Row, Row]:
    """Return rows of two kept records of the same split and, with `one_bucket`, the same bucket."""
    kept = [row for row in rows if row["status"] == "kept"]
    return next(
        (a, b)
        for a in kept
        for b in kept
        if a["ordinal"] < b["ordinal"]
        and a["split"] == b["split"]
        and (not one_bucket or dataset.place(a)[0] is dataset.place(b)[0])
    )


def same_length(dataset: OpenDataset) -> list[Row]:
    return dataset.all(residues=40)
