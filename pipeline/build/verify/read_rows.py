"""Check a records/ file, and copy the columns that `--deep` needs into a work file (`row_file`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import one_chunk, valid
from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.build.tasks import OnBytes
from pipeline.build.verify.deep_job import DeepJob
from pipeline.build.verify.findings import Findings
from pipeline.build.verify.row_file import ROW, put_rows
from pipeline.reader.arrow_columns import numbers
from pipeline.reader.mapped_shard import checked_content
from schemas.errors import DatasetError, StoreError
from schemas.manifest_entries import RecordsEntry
from schemas.records import EXCLUSION_KINDS, STATUS_CODES, Status
from schemas.shard import SPLITS

_COLUMNS: Final = (
    *("ordinal", "source", "residues", "unknown", "hash", "split", "shard", "bucket", "status"),
    *("duplicate_of", "cluster", "exclusion", "match", "match_file"),
)
"""Columns that the deep check reads."""


@dataclass(frozen=True, slots=True)
class RowsTask:
    """Check and read one records/ file."""

    job: DeepJob
    entry: RecordsEntry


@dataclass(slots=True)
class RowsResult:
    """Result of a task.

    problems: faults of the file
    unreadable: reasons why the rows of the file cannot be compared
    statuses: int64[statuses], number of records of each status
    sources: number of records of each input
    """

    problems: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    statuses: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(len(STATUS_CODES), dtype=np.int64)
    )
    sources: Counter[str] = field(default_factory=Counter)


def read_rows(task: RowsTask, on_bytes: OnBytes, *, durable: bool) -> RowsResult:
    """Check a records/ file, and copy its rows. `Work` explains the arguments.

    Raises:
        StoreError: the file could not be read.
    """
    result = RowsResult()
    where = task.job.dataset.where(task.entry.name)
    try:
        content = checked_content(task.job.dataset, task.entry)
    except StoreError:
        raise
    except DatasetError as error:
        result.problems.append(str(error))
        return result
    try:
        _copy_rows(task, content, result)
    except (pa.ArrowException, OSError) as error:
        result.unreadable.append(f"{where}: not a readable file of records/: {error}")
    on_bytes(task.entry.bytes)
    return result


def _copy_rows(task: RowsTask, content: pa.Buffer, result: RowsResult) -> None:
    """Copy rows, one row group after another, and check the rules of single rows.

    Raises:
        pa.ArrowException, OSError: the file cannot be read.
    """
    file = pq.ParquetFile(pa.BufferReader(content))
    where, records, entry = task.job.dataset.where(task.entry.name), task.job.records, task.entry
    result.unreadable += _schema_problems(file.schema_arrow, task.job.schema, where)
    if file.metadata.num_rows != entry.rows:
        result.unreadable.append(
            f"{where}: {file.metadata.num_rows} rows, the manifest says {entry.rows}"
        )
    if result.unreadable:
        return
    all_rows = task.job.rows
    for table in _row_groups(file):
        ordinal = numbers(one_chunk(table.column("ordinal")), np.int64)
        if ordinal.size and (ordinal.min() < 0 or ordinal.max() >= records):
            result.unreadable.append(f"{where}: an ordinal is outside 0..{records - 1}")
            return
        rows = _rows_of(table)
        put_rows(all_rows, ordinal, rows)
        _check_rows(ordinal, rows, result.findings)
        _check_matches(ordinal, table, rows, task.job.exclusion_files, result.findings)
        if not task.job.clusters:
            what = "has a cluster although the dataset was built without --clusters"
            result.findings.add(what, ordinal[rows["cluster"] != 0])
        known = rows["status"][rows["status"] >= 0]
        result.statuses += np.bincount(known, minlength=result.statuses.size)
        result.sources.update(_count_words(one_chunk(table.column("source"))))


def _schema_problems(found: pa.Schema, expected: pa.Schema, where: str) -> list[str]:
    if found.equals(expected):
        return []
    wrong = [
        f"{where}: column {field.name!r} is missing, or its type is not {field.type}"
        for field in expected
        if field.name not in found.names or not found.field(field.name).equals(field)
    ]
    return wrong or [f"{where}: it has additional columns, or its columns are in another order"]


def _row_groups(file: pq.ParquetFile) -> Iterator[pa.Table]:
    for group in range(file.num_row_groups):
        if file.metadata.row_group(group).num_rows:
            yield file.read_row_group(group, columns=list(_COLUMNS), use_threads=False)


def _rows_of(table: pa.Table) -> NDArray[Any]:
    """Return the facts of a table's records, ROW[rows]."""
    rows = np.zeros(table.num_rows, dtype=ROW)
    column = {name: one_chunk(table.column(name)) for name in _COLUMNS}
    hashes = np.frombuffer(
        column["hash"].buffers()[1], HASH, len(rows), column["hash"].offset * HASH.itemsize
    )
    rows["hash"]["high"], rows["hash"]["low"] = hashes["high"], hashes["low"]
    rows["residues"] = numbers(column["residues"], np.int64)
    rows["unknown"] = numbers(column["unknown"], np.int64)
    rows["duplicate_of"] = _with_null(column["duplicate_of"], np.int64, -1)
    rows["bucket"] = _with_null(column["bucket"], np.int32, -1)
    rows["cluster"] = _with_null(column["cluster"], np.uint64, 0)
    rows["shard"] = _keys(column["shard"], shard_key, null=0)
    rows["status"] = _keys(column["status"], _index_in(tuple(Status)), null=-2)
    rows["split"] = _keys(column["split"], _index_in(SPLITS), null=-1)
    rows["present"] = 1
    return rows


def _check_rows(ordinal: NDArray[np.int64], rows: NDArray[Any], findings: Findings) -> None:
    """Check the rules that concern a single row.

    Args:
        ordinal: int64[N].
        rows: ROW[N].
    """
    kept = rows["status"] == STATUS_CODES.index(Status.KEPT)
    placed = (rows["split"] != -1) | (rows["shard"] != 0) | (rows["bucket"] != -1)
    findings.add("has a split, shard or bucket although it was not kept", ordinal[~kept & placed])
    duplicate = rows["status"] == STATUS_CODES.index(Status.DUPLICATE)
    findings.add(
        "is a duplicate without duplicate_of, or has duplicate_of but is no duplicate",
        ordinal[duplicate != (rows["duplicate_of"] >= 0)],
    )


def _check_matches(
    ordinal: NDArray[np.int64],
    table: pa.Table,
    rows: NDArray[Any],
    files: tuple[str, ...],
    findings: Findings,
) -> None:
    """Check that excluded records have a match in a file of --exclude, and other records have none.

    Args:
        ordinal: int64[N].
        rows: ROW[N], facts of the table's records.
        files: names of the files of --exclude.
    """
    excluded = rows["status"] == STATUS_CODES.index(Status.EXCLUDED)
    kind = _keys(one_chunk(table.column("exclusion")), _index_in(EXCLUSION_KINDS), null=-1)
    file = _keys(one_chunk(table.column("match_file")), _index_in(files), null=-1)
    missing = (kind < 0) | (file < 0) | ~valid(one_chunk(table.column("match")))
    findings.add(
        "was excluded, but exclusion, match or match_file is null, or --exclude names no such file",
        ordinal[excluded & missing],
    )
    empty = (kind == -1) & (file == -1) & ~valid(one_chunk(table.column("match")))
    findings.add(
        "has exclusion, match or match_file although it was not excluded",
        ordinal[~excluded & ~empty],
    )


def shard_key(name: str) -> int:
    """Return a number for a shard's name. The probability that two names share a number is 2⁻⁶⁴."""
    return xxhash.xxh3_64_intdigest(name.encode()) or 1


def _index_in(words: tuple[str, ...]) -> Callable[[str], int]:
    """Return a function that gives a word's index in `words`; -2 for any other word."""
    index = {str(word): i for i, word in enumerate(words)}
    return lambda word: index.get(word, -2)


def _keys(column: pa.DictionaryArray, key: Callable[[str], int], *, null: int) -> NDArray[Any]:
    """Return the key of each word of a dictionary column."""
    dtype = np.uint64 if key is shard_key else np.int64
    keys = np.array([*map(key, column.dictionary.to_pylist()), null], dtype=dtype)
    found: NDArray[Any] = keys[_with_null(column.indices, np.int32, -1)]
    return found


def _count_words(column: pa.DictionaryArray) -> dict[str, int]:
    """Return the number of occurrences of each word of a dictionary column without nulls."""
    words = column.dictionary.to_pylist()
    counts = np.bincount(numbers(column.indices, np.int32), minlength=len(words))
    found: Counter[str] = Counter()
    for word, count in zip(words, counts.tolist(), strict=True):
        found[word] += count
    return found


def _with_null(array: pa.Array, dtype: type[np.generic], null: int) -> NDArray[Any]:
    """Return numbers, with `null` in place of each null.

    pyarrow's `fill_null` would import pyarrow.compute, which takes 0.2 s.
    """
    values = array.buffers()[1]
    found = np.frombuffer(
        values, dtype, len(array), offset=array.offset * np.dtype(dtype).itemsize
    ).copy()
    if array.null_count:
        found[~valid(array)] = null
    return found
