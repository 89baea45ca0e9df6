"""Join the parts: write a file with one row for each input record.

The rows of a record come from its own sequence or, for a duplicate, from the sequence of the record
that was kept. A record without a sequence in the dataset has a row without results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.reader.record_rows import read_records
from pipeline.storage.atomic_write import sync_files
from schemas.manifest_entries import RecordsEntry
from trainer.checkpoints.atomic_write import PARTIAL, publish
from trainer.config.inference_options import Format
from trainer.inference.join.join_windows import joined, per_record
from trainer.inference.join.window_index import WindowIndex
from trainer.inference.parts import Result

_ROWS_BYTES: Final = 64 << 20
"""Approximate size of the rows that are joined at a time."""
_LEAST_ROWS: Final = 16
_RECORD_COLUMNS: Final = ("ordinal", "id", "status", "residues", "duplicate_of")


class _Writer(Protocol):
    def write_batch(self, batch: pa.RecordBatch) -> None: ...


def output_path(out: Path, entry: RecordsEntry, form: Format) -> Path:
    """Return the output file for a file of records/."""
    return out / f"{Path(entry.name).stem}.{form}"


def output_schema(results: Sequence[Result]) -> pa.Schema:
    """Return the schema of output files.

    | column | meaning |
    |---|---|
    | ordinal, id, status | as in records/ |
    | residues | number of residues of the record |
    | used_residues | number of residues that the results are about; 0 without results |
    | results | null without results |
    """
    return pa.schema(
        [
            pa.field("ordinal", pa.int64(), nullable=False),
            pa.field("id", pa.string(), nullable=False),
            pa.field("status", pa.dictionary(pa.int8(), pa.string()), nullable=False),
            pa.field("residues", pa.int32(), nullable=False),
            pa.field("used_residues", pa.int32(), nullable=False),
            *(result.field for result in results),
        ]
    )


def assemble(
    url: str,
    entry: RecordsEntry,
    index: WindowIndex,
    results: Sequence[Result],
    path: Path,
    form: Format,
) -> int:
    """Write the output file for a file of records/. The file appears when it is complete.

    Args:
        url: folder or URL of the dataset.
    Returns:
        The number of records whose results are about a part of the record only.
    Raises:
        DatasetError: the file of records/ is missing or damaged, or cannot be read.
    """
    table = read_records(url, entry, _RECORD_COLUMNS)
    ordinal = table["ordinal"].to_numpy()
    copies = table["duplicate_of"].to_numpy(zero_copy_only=False)
    copies = np.nan_to_num(copies.astype(np.float64), nan=-1).astype(np.int64)
    source = np.where(copies >= 0, copies, ordinal)
    partial = path.with_name(path.name + PARTIAL)
    schema = output_schema(results)
    partly = 0
    with _writer(partial, schema, form) as writer:
        for begin, end in _chunks(source, index, results):
            rows = table.slice(begin, end - begin)
            first, last = index.find(source[begin:end])
            used = per_record(index.residues, first, last)
            residues = rows["residues"].to_numpy()
            partly += int(((used > 0) & (used < residues)).sum())
            columns = [
                rows["ordinal"].combine_chunks(),
                rows["id"].combine_chunks().cast(pa.string()),
                _dictionary(rows["status"]),
                rows["residues"].combine_chunks().cast(pa.int32()),
                pa.array(used.astype(np.int32)),
                *(joined(result, index, first, last) for result in results),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    sync_files([partial])
    publish(partial, path)
    return partly


@contextmanager
def _writer(path: Path, schema: pa.Schema, form: Format) -> Iterator[_Writer]:
    if form == "arrow":
        with pa.ipc.new_file(str(path), schema) as file:
            yield file
        return
    # embeddings do not compress
    compression = {
        field.name: "none" if pa.types.is_nested(field.type) else "zstd" for field in schema
    }
    with pq.ParquetWriter(
        str(path),
        schema,
        compression=compression,
        use_dictionary=["status"],
        write_statistics=["ordinal"],
    ) as file:
        yield file


def _dictionary(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.cast(pa.string())
    return values.dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))


def _chunks(
    source: NDArray[np.int64], index: WindowIndex, results: Sequence[Result]
) -> Iterator[tuple[int, int]]:
    """Yield ranges of records whose results have about _ROWS_BYTES."""
    fixed = sum(max(1, r.size) * r.dtype.itemsize for r in results if r.join != "concatenate")
    listed = sum(max(1, r.size) * r.dtype.itemsize for r in results if r.join == "concatenate")
    begin = 0
    step = max(_LEAST_ROWS, _ROWS_BYTES // (fixed + 64))
    while begin < source.size:
        end = min(begin + step, source.size)
        if listed:
            first, last = index.find(source[begin:end])
            sizes = np.cumsum(per_record(index.residues, first, last)) * listed
            end = min(end, begin + max(1, int(np.searchsorted(sizes, _ROWS_BYTES))))
        yield begin, end
        begin = end
