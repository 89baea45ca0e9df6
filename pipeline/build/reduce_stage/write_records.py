"""Write records/: Parquet files with one row for every input record, kept or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.build.arrays.arrow_arrays import bytes_and_edges
from pipeline.build.reduce_stage.record_rows import TEXTS, RecordRows, empty_rows
from pipeline.build.reduce_stage.record_table import record_table
from pipeline.storage.atomic_write import Finisher
from pipeline.storage.folder import Folder
from schemas.manifest_entries import RecordsEntry
from schemas.records import records_schema

_ROW_GROUP = 1 << 17
"""Maximum number of rows in a row group."""
_GROUP_ID_BYTES = 16 << 20
"""A row group ends once its ids and descriptions reach this many bytes. This bounds memory."""
_DICTIONARIES = ("source", "split", "shard", "status", "organism", "pe", "database")
_NUMBERS = (
    *("ordinal", "offset", "residues", "unknown", "bucket", "duplicate_of"),
    *("taxid", "cluster_size"),
)


def write_records(
    blocks: Iterable[RecordRows],
    name: str,
    *,
    names: tuple[str, ...],
    out: Folder,
    finisher: Finisher,
) -> RecordsEntry:
    """Write rows as the records/ file `name`; return its manifest entry.

    Args:
        blocks: rows in ascending order of ordinals. The sizes of the blocks do not change the
            file's bytes.
        names: names of the inputs, in the order of source indices.
        out: the dataset's folder.
        finisher: object that syncs or uploads the file in the background.
    Raises:
        BuildError: the file cannot be written.
    """
    written = 0
    with (
        out.written(name, finisher=finisher) as file,
        records_writer(file, records_schema()) as writer,
    ):
        for group in _row_groups(blocks):
            writer.write_table(record_table(group, names), row_group_size=_ROW_GROUP)
            written += len(group)
    return RecordsEntry(name=name, bytes=file.bytes, rows=written, xxh3_128=file.xxh3_128)


def records_writer(file: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of columns of records/.

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
    """Yield at least one row group. The sizes depend on the rows, not on the blocks."""
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
