"""Write records/: Parquet files with one row for every input record, kept or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import (
    bytes_and_edges,
    number_array,
    string_array,
    take_bytes,
)
from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.build.reduce_stage.write_shards import WrittenSplit
from pipeline.storage.atomic_write import Finisher
from pipeline.storage.folder import Folder
from schemas.manifest_entries import RecordsEntry
from schemas.records import Status, records_schema
from schemas.shard import SPLITS

_ROW_GROUP = 1 << 17
"""Maximum number of rows in a row group."""
_GROUP_ID_BYTES = 16 << 20
"""Maximum bytes of ids in a row group, to bound memory. Only a single longer id exceeds this."""
_DICTIONARIES = ["source", "split", "shard", "status"]
_NUMBERS = ["ordinal", "offset", "residues", "unknown", "bucket", "duplicate_of"]
_COMPRESSION = {
    field.name: "lz4" if field.name in ("id", *_DICTIONARIES) else "none"
    for field in records_schema()
}
"""Compression of each column. zstd for all columns would save 10 % and take three times as long.
Hashes do not compress."""


@dataclass(slots=True, kw_only=True)
class RecordRows:
    """Rows of records/ for N records. docs/reference/format.md describes each column.

    ordinal, offset, residues, unknown: int64[N]
    id:           large_binary[N]
    source:       int32[N], index into the inputs
    hash:         HASH[N]
    status:       int8[N], index into `Status`
    duplicate_of: int64[N], -1 for none
    split:        int8[N], index into SPLITS, -1 for none
    shard:        int32[N], index into `shard_names`, -1 for none
    bucket:       int32[N], row in the shard, -1 for none
    """

    ordinal: NDArray[np.int64]
    id: pa.Array
    source: NDArray[np.int32]
    offset: NDArray[np.int64]
    residues: NDArray[np.int64]
    unknown: NDArray[np.int64]
    hash: NDArray[np.void]
    status: NDArray[np.int8]
    duplicate_of: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    split: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, dtype=np.int8))
    shard: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    bucket: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    shard_names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("duplicate_of", "split", "shard", "bucket"):
            if getattr(self, name).size != self.ordinal.size:
                setattr(self, name, np.full(self.ordinal.size, -1, dtype=getattr(self, name).dtype))

    def __len__(self) -> int:
        return int(self.ordinal.size)

    def place(
        self, row: NDArray[np.int64], start: NDArray[np.int64], written: WrittenSplit
    ) -> None:
        """Set shard and bucket of the records whose first sequence was written.

        Args:
            row: int64[M], row of each sequence of the split.
            start: int64[M], index of a sequence's first residue in its record; 0 for a first
                sequence.
        """
        first = np.flatnonzero((start == 0) & ~written.left_over)
        self.shard[row[first]] = written.shard[first] + len(self.shard_names)
        self.bucket[row[first]] = written.bucket[first]
        self.shard_names += [entry.name for entry in written.entries]

    def take(self, indices: NDArray[np.int64]) -> RecordRows:
        """Return the rows at `indices`, int64[M]."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        arrays = {
            name: value[indices] for name, value in values.items() if isinstance(value, np.ndarray)
        }
        return RecordRows(**{**values, **arrays, "id": take_bytes(self.id, indices)})

    def part(self, first: int, last: int) -> RecordRows:
        """Return the rows first … last - 1, without a copy."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        arrays = {
            name: value[first:last]
            for name, value in values.items()
            if isinstance(value, np.ndarray)
        }
        return RecordRows(**{**values, **arrays, "id": self.id.slice(first, last - first)})

    def followed_by(self, *others: RecordRows) -> RecordRows:
        """Return these rows and then the rows of `others`; `shard_names` must be the same."""
        every = (self, *others)
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                # np.concatenate turns big-endian hashes into little-endian; astype turns them back
                values[name] = np.concatenate([getattr(rows, name) for rows in every]).astype(
                    value.dtype, copy=False
                )
        return RecordRows(
            **{
                **values,
                "id": pa.concat_arrays(
                    [rows.id for rows in every], memory_pool=pa.system_memory_pool()
                ),
            }
        )

    def sorted_by_ordinal(self) -> RecordRows:
        """Return the rows sorted by ordinal."""
        return self.take(np.argsort(self.ordinal))


def empty_rows() -> RecordRows:
    """Return `RecordRows` without rows."""
    columns: dict[str, Any] = {
        name: np.empty(0, dtype=np.int64) for name in ("ordinal", "offset", "residues", "unknown")
    }
    columns |= {
        "source": np.empty(0, dtype=np.int32),
        "status": np.empty(0, dtype=np.int8),
        "hash": np.empty(0, dtype=HASH),
    }
    nothing = pa.py_buffer(bytes(8))
    return RecordRows(
        id=pa.Array.from_buffers(pa.large_binary(), 0, [None, nothing, nothing]), **columns
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
        pq.ParquetWriter(
            file,
            records_schema(),
            compression=_COMPRESSION,
            use_dictionary=_DICTIONARIES,
            column_encoding=dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
            write_statistics=["ordinal"],
        ) as writer,
    ):
        for group in _row_groups(blocks):
            writer.write_table(_table(group, names), row_group_size=_ROW_GROUP)
            written += len(group)
    return RecordsEntry(name=name, bytes=file.bytes, rows=written, xxh3_128=file.xxh3_128)


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
    """Return the number of rows in the first row group; None if later rows may belong to it."""
    end = int(np.searchsorted(bytes_and_edges(rows.id)[1][1:], _GROUP_ID_BYTES)) + 1
    end = min(end, _ROW_GROUP)
    return end if end <= len(rows) else None


def _table(rows: RecordRows, names: tuple[str, ...]) -> pa.Table:
    """Return rows in the schema of records/."""
    return pa.table(
        [
            number_array(rows.ordinal),
            _text(rows.id),
            _words(rows.source, names),
            number_array(rows.offset),
            number_array(rows.residues),
            number_array(rows.unknown),
            pa.Array.from_buffers(
                pa.binary(16),
                len(rows),
                [None, pa.py_buffer(np.ascontiguousarray(rows.hash, dtype=HASH))],
            ),
            _words(rows.split, SPLITS),
            _words(rows.shard, rows.shard_names),
            number_array(rows.bucket, valid=rows.shard >= 0),
            _words(rows.status, tuple(Status)),
            number_array(rows.duplicate_of, valid=rows.duplicate_of >= 0),
        ],
        schema=records_schema(),
    )


def _words(codes: NDArray[Any], words: tuple[str, ...] | list[str]) -> pa.Array:
    """Return codes as a dictionary array of words; -1 is null."""
    return pa.DictionaryArray.from_arrays(
        number_array(codes.astype(np.int32), valid=codes >= 0), string_array(words)
    )


def _text(ids: pa.Array) -> pa.Array:
    """Return ids as strings; bytes that are not UTF-8 become escapes such as \\xff."""
    values, edges = bytes_and_edges(ids)
    text = pa.Array.from_buffers(
        pa.string(), len(ids), [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(values)]
    )
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array(
            [value.decode("utf-8", "backslashreplace") for value in ids.to_pylist()], pa.string()
        )
    return text
