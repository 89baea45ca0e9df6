"""Read columns of records/ files, in tasks that need all records of earlier generations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline.reader.mapped_shard import checked_content
from pipeline.storage.folder import Folder
from schemas.errors import DatasetError
from schemas.manifest_entries import RecordsEntry
from schemas.text.phrases import REBUILD

TASK_ROWS: Final = 500_000
"""Minimum number of records that a task reads, except for the last task. Scanning this many takes
about half a second."""


def task_groups(entries: Sequence[RecordsEntry]) -> list[tuple[RecordsEntry, ...]]:
    """Divide records/ files into one group for each task."""
    groups: list[list[RecordsEntry]] = []
    rows = TASK_ROWS
    for entry in entries:
        if rows >= TASK_ROWS:
            groups.append([])
            rows = 0
        groups[-1].append(entry)
        rows += entry.rows
    return [tuple(group) for group in groups]


def group_digest(entries: Sequence[RecordsEntry]) -> str:
    """Return a digest of the contents of records/ files, for the name of a task."""
    return xxhash.xxh3_64_hexdigest(" ".join(entry.xxh3_128 for entry in entries).encode())


def row_groups(out: Folder, entry: RecordsEntry, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield columns of a records/ file. One row group is in memory at a time.

    Args:
        out: the dataset's folder.
    Raises:
        DatasetError: the file is missing, damaged or cannot be read.
    """
    content = checked_content(out, entry)
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, columns=list(columns), use_threads=False)
    except (pa.ArrowException, OSError, KeyError) as error:
        where = f"{out.where(entry.name)}: not a readable file of records/"
        raise DatasetError(f"{where}: {error}; {REBUILD}") from error
