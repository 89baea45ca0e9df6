"""Write records/: Parquet files with one row for every input record, kept or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges, one_chunk
from pipeline.build.exclusion.exclusion_index import ExclusionIndex
from pipeline.build.named_files.metadata.lookup import MetadataTable
from pipeline.build.reduce_stage.record_rows import TEXTS, RecordRows, empty_rows
from pipeline.build.reduce_stage.record_table import record_table
from pipeline.storage.atomic_write import Finisher
from pipeline.storage.folder import Folder
from schemas.manifest_entries import RecordsEntry
from schemas.records import NO_COLUMNS, records_schema

_ROW_GROUP = 1 << 17
"""Maximum number of rows in a row group."""
_GROUP_ID_BYTES = 16 << 20
"""A row group ends once its ids and encoded header values reach this many bytes. This bounds
memory."""
_DICTIONARIES = (
    *("source", "split", "shard", "status", "exclusion", "match_file"),
    *("organism", "pe", "database"),
)
_NUMBERS = (
    *("ordinal", "offset", "residues", "unknown", "bucket", "duplicate_of"),
    *("taxid", "cluster_size"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedColumns:
    """Options that add columns to records/, or fill columns that are otherwise empty.

    keep_header: True to add the column of full headers
    metadata: table of --metadata
    exclusions: entries of --exclude, or None if no row is excluded
    """

    keep_header: bool = False
    metadata: MetadataTable | None = None
    exclusions: ExclusionIndex | None = None

    @property
    def schema(self) -> pa.Schema:
        """Schema of records/."""
        return records_schema(
            keep_header=self.keep_header,
            metadata_columns=NO_COLUMNS if self.metadata is None else self.metadata.columns,
        )


def write_records(
    blocks: Iterable[RecordRows],
    name: str,
    *,
    names: tuple[str, ...],
    added: AddedColumns,
    out: Folder,
    finisher: Finisher,
) -> tuple[RecordsEntry, int]:
    """Write rows as the records/ file `name`.

    Args:
        blocks: rows in input order. The sizes of the blocks do not change the file's bytes.
        names: names of the inputs, in the order of source indices.
        added: columns that options add.
        out: the dataset's folder.
        finisher: object that syncs or uploads the file in the background.
    Returns:
        The file's manifest entry, and the number of records with a row in the table of --metadata.
    Raises:
        BuildError: the file cannot be written.
    """
    written = matched = 0
    schema = added.schema
    with (
        out.written(name, durable=False, write_back=True, finisher=finisher) as file,
        records_writer(file, schema) as writer,
    ):
        for group in _row_groups(blocks):
            table = record_table(
                group, names, keep_header=added.keep_header, exclusions=added.exclusions
            )
            written += len(group)
            if added.metadata is None:
                writer.write_table(table, row_group_size=_ROW_GROUP)
                continue
            rows = added.metadata.find(*(one_chunk(table[name]) for name in ("id", "accession")))
            matched += int(np.count_nonzero(rows >= 0))
            for first, last in _metadata_groups(added.metadata.text_bytes(rows)):
                columns = {
                    name: added.metadata.take(name, rows[first:last])
                    for name in sorted(added.metadata.columns)
                }
                part = [*table.slice(first, last - first).columns, *columns.values()]
                writer.write_table(pa.table(part, schema=schema), row_group_size=_ROW_GROUP)
    entry = RecordsEntry(name=name, bytes=file.bytes, rows=written, xxh3_128=file.xxh3_128)
    return entry, matched


def _metadata_groups(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Divide a row group if its texts of --metadata are too large. Yield ranges of its rows.

    Args:
        sizes: int64[N], bytes of the texts of each row.
    """
    ends = np.cumsum(sizes)
    first = 0
    while first < sizes.size or not first:
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + _GROUP_ID_BYTES)) + 1
        yield first, min(last, sizes.size)
        first = last


def records_writer(file: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a Parquet writer for the columns of records/.

    Texts and dictionaries are compressed with lz4. Compression of all columns with zstd would save
    10 % of the size, but take three times as long. Hashes cannot be compressed.
    """
    return pq.ParquetWriter(
        file,
        schema,
        compression={
            field.name: "lz4"
            if pa.types.is_string(field.type) or field.name in _DICTIONARIES
            else "none"
            for field in schema
        },
        use_dictionary=[name for name in _DICTIONARIES if name in schema.names],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _NUMBERS if name in schema.names},
        write_statistics=["ordinal"],
    )


def _row_groups(blocks: Iterable[RecordRows]) -> Iterator[RecordRows]:
    """Yield at least one row group. The sizes of groups do not depend on the sizes of blocks."""
    waiting = empty_rows()
    groups = 0
    for block in blocks:
        waiting = waiting.followed_by(block) if len(waiting) else block
        while (end := _group_end(waiting)) is not None:
            yield waiting.part(0, end)
            waiting = waiting.part(end, len(waiting))
            groups += 1
    if len(waiting) or not groups:
        yield waiting


def _group_end(rows: RecordRows) -> int | None:
    """Return the number of rows in the first row group; None if later rows may join the group."""
    size = sum(bytes_and_edges(getattr(rows, name))[1][1:] for name in TEXTS)
    end = int(np.searchsorted(size, _GROUP_ID_BYTES)) + 1
    end = min(end, _ROW_GROUP)
    return end if end <= len(rows) else None
