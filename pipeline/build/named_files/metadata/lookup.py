"""Find the rows of --metadata that belong to records.

A row belongs to a record if its key is the record's accession, or else the record's id. The table
is a work file that is mapped into memory, sorted by the hash of its keys (`prepare_table`). Each
match is confirmed by the key itself, so that two keys with the same hash are told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges, gather_runs, number_array
from pipeline.build.arrays.sequence_hashes import sequence_hashes
from pipeline.build.task_results import PreparedFile
from pipeline.storage.folder import Folder
from schemas.errors import DamagedSpillError
from schemas.records import ColumnType, arrow_type


def key_hashes(values: NDArray[np.uint8], edges: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a hash of each key, uint64[N]. Key i is values[edges[i]:edges[i + 1]]."""
    hashes: NDArray[np.uint64] = sequence_hashes(values, edges[1:])["high"].astype(np.uint64)
    return hashes


class MetadataTable:
    """The sorted table of --metadata, in B batches. The number of a row is its position in the work
    file. The number -1 means that a record has no row."""

    def __init__(self, content: pa.Buffer, columns: dict[str, ColumnType]) -> None:
        """Open a work file. `columns` are the types of its columns."""
        reader = pa.ipc.open_file(content)
        self.columns = columns
        self._batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        self._hashes = [_numbers(batch.column(0), np.uint64) for batch in self._batches]
        self._keys = [_Texts.of(batch.column(2)) for batch in self._batches]
        self._first_hash = np.array([hashes[0] for hashes in self._hashes], dtype=np.uint64)
        self._edges = np.cumsum([0, *(hashes.size for hashes in self._hashes)])

    def find(self, ids: pa.Array, accessions: pa.Array) -> NDArray[np.int64]:
        """Return the row of each record, int64[N].

        Args:
            ids, accessions: string[N]; an accession that is not stated is null.
        """
        rows = self._find(*bytes_and_edges(accessions))
        missing = np.flatnonzero(rows < 0)
        if missing.size:
            values, edges = bytes_and_edges(ids)
            rest = gather_runs(values, edges[missing], edges[missing + 1], pa.large_binary())
            rows[missing] = self._find(*bytes_and_edges(rest))
        return rows

    def _find(self, values: NDArray[np.uint8], edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each key, int64[N]; an empty key has no row."""
        rows = np.full(edges.size - 1, -1, dtype=np.int64)
        stated = np.flatnonzero(np.diff(edges))
        hashes = key_hashes(values, edges)
        order = stated[np.argsort(hashes[stated])]
        batch_of = np.searchsorted(self._first_hash, hashes[order], side="right") - 1
        ends = np.searchsorted(batch_of, np.arange(len(self._batches)), side="right")
        begins = np.searchsorted(batch_of, np.arange(len(self._batches)), side="left")
        for batch in np.flatnonzero(ends > begins).tolist():
            chosen = order[begins[batch] : ends[batch]]
            keys = values, edges[chosen], edges[chosen + 1]
            found = self._find_in_batch(batch, hashes[chosen], keys)
            rows[chosen] = np.where(found < 0, -1, found + self._edges[batch])
        return rows

    def _find_in_batch(
        self,
        batch: int,
        hashes: NDArray[np.uint64],
        keys: tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]],
    ) -> NDArray[np.int64]:
        """Return the index of each key in a batch, int64[M]; -1 for none."""
        values, begin, end = keys
        table, texts = self._hashes[batch], self._keys[batch]
        found = np.full(hashes.size, -1, dtype=np.int64)
        at = np.searchsorted(table, hashes)
        left = np.arange(hashes.size)
        while left.size:  # more than one round only if two keys have the same hash
            left = left[at[left] < table.size]
            left = left[table[at[left]] == hashes[left]]
            other_begin, other_end = texts.spans(at[left])
            same = _equal_texts(
                values, begin[left], end[left], texts.values, other_begin, other_end
            )
            found[left[same]] = at[left[same]]
            left = left[~same]
            at[left] += 1
        return found

    def take(self, name: str, rows: NDArray[np.int64]) -> pa.Array:
        """Return the values of column `name` in `rows`, int64[N]. The value for row -1 is null."""
        kind = self.columns[name]
        columns = [batch.column(name) for batch in self._batches]
        if kind == "string":
            return self._take_texts(columns, rows)
        dtype = arrow_type(kind).to_pandas_dtype()
        values = np.zeros(rows.size, dtype=dtype)
        valid = np.zeros(rows.size, dtype=np.bool_)
        for batch, chosen, at in self._by_batch(rows):
            column = columns[batch]
            valid[chosen] = _valid(column, at)
            if kind == "bool":
                values[chosen] = _bits(column.buffers()[1], at + column.offset)
            else:
                values[chosen] = _numbers(column, dtype)[at]
        if kind == "bool":
            return pa.Array.from_buffers(
                pa.bool_(), rows.size, [_packed_bits(valid), _packed_bits(values)]
            )
        return number_array(values, valid=valid)

    def _take_texts(self, columns: Sequence[pa.Array], rows: NDArray[np.int64]) -> pa.Array:
        valid = np.zeros(rows.size, dtype=np.bool_)
        begin = np.zeros(rows.size, dtype=np.int64)
        end = np.zeros(rows.size, dtype=np.int64)
        gathered: list[NDArray[np.uint8]] = [np.empty(0, dtype=np.uint8)]
        size = 0
        for batch, chosen, at in self._by_batch(rows):
            valid[chosen] = _valid(columns[batch], at)
            texts = _Texts.of(columns[batch])
            values, edges = bytes_and_edges(
                gather_runs(texts.values, *texts.spans(at), pa.large_binary())
            )
            begin[chosen], end[chosen] = edges[:-1] + size, edges[1:] + size
            gathered.append(values)
            size += int(edges[-1])
        texts = gather_runs(np.concatenate(gathered), begin, end, pa.binary())
        _, offsets, values = texts.buffers()
        return pa.Array.from_buffers(pa.string(), rows.size, [_packed_bits(valid), offsets, values])

    def text_bytes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of bytes of all texts of each row, int64[N]."""
        size = np.zeros(rows.size, dtype=np.int64)
        names = [name for name, kind in self.columns.items() if kind == "string"]
        for batch, chosen, at in self._by_batch(rows):
            for name in names:
                begin, end = _Texts.of(self._batches[batch].column(name)).spans(at)
                size[chosen] += end - begin
        return size

    def _by_batch(
        self, rows: NDArray[np.int64]
    ) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Return, for each batch that has some of the rows: its index, the indices of these rows
        in `rows`, and their indices in the batch."""
        order = np.argsort(rows, kind="stable")
        edges = np.searchsorted(rows[order], self._edges)
        return [
            (batch, chosen, rows[chosen] - self._edges[batch])
            for batch in np.flatnonzero(np.diff(edges)).tolist()
            if (chosen := order[edges[batch] : edges[batch + 1]]).size
        ]


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts of a column of a mapped file. No value is copied.

    values: uint8[T], all texts end to end
    edges: int32[N + 1], edges of the texts
    """

    values: NDArray[np.uint8]
    edges: NDArray[np.int32]

    @classmethod
    def of(cls, column: pa.Array) -> _Texts:
        _, edges, values = column.buffers()
        return cls(
            np.empty(0, dtype=np.uint8) if values is None else np.frombuffer(values, np.uint8),
            np.frombuffer(edges, np.int32)[column.offset :],
        )

    def spans(self, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return begin and end of the texts at `at`, both int64[M]."""
        return self.edges[at].astype(np.int64), self.edges[at + 1].astype(np.int64)


def _numbers(column: pa.Array, dtype: Any) -> NDArray[Any]:
    """Return the numbers of a column, without a copy. Nulls become arbitrary numbers."""
    return np.frombuffer(column.buffers()[1], dtype=dtype)[column.offset :][: len(column)]


def _valid(column: pa.Array, at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether the values at `at` are not null, bool[M]."""
    nulls = column.buffers()[0]
    if nulls is None:
        return np.ones(at.size, dtype=np.bool_)
    return _bits(nulls, at + column.offset)


def _bits(buffer: pa.Buffer, at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the bits at `at`, bool[M]."""
    octets = np.frombuffer(buffer, dtype=np.uint8)
    bits: NDArray[np.bool_] = (octets[at >> 3] >> (at & 7).astype(np.uint8) & 1).astype(np.bool_)
    return bits


def _packed_bits(values: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _equal_texts(
    values: NDArray[np.uint8],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    other: NDArray[np.uint8],
    other_begin: NDArray[np.int64],
    other_end: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return whether each text values[begin[i]:end[i]] equals other[other_begin[i]:other_end[i]],
    bool[M]."""
    same: NDArray[np.bool_] = end - begin == other_end - other_begin
    chosen = np.flatnonzero(same)
    ours, edges = bytes_and_edges(
        gather_runs(values, begin[chosen], end[chosen], pa.large_binary())
    )
    theirs, _ = bytes_and_edges(
        gather_runs(other, other_begin[chosen], other_end[chosen], pa.large_binary())
    )
    differing = np.concatenate(([0], np.cumsum(ours != theirs)))
    same[chosen] = differing[edges[1:]] == differing[edges[:-1]]
    return same


_last_opened: tuple[str, MetadataTable] | None = None
"""Path, hash and content of the last work file opened. One is enough, because a process works on
one build at a time."""


def metadata_table(prepared: Sequence[PreparedFile], work: Folder) -> MetadataTable | None:
    """Return the table of --metadata; None without the option. A process opens it once.

    Raises:
        DamagedSpillError: the work file is damaged.
        FileNotFoundError, ThdpackError: the work file is missing or cannot be read.
    """
    global _last_opened
    for file in prepared:
        if file.option != "metadata":
            continue
        key = f"{work.where(file.file.name)} {file.file.xxh3_128}"
        if _last_opened is None or _last_opened[0] != key:
            content = work.buffer(file.file.name)
            if xxhash.xxh3_128_hexdigest(content) != file.file.xxh3_128:
                raise DamagedSpillError(file.file.name)
            _last_opened = key, MetadataTable(content, dict(file.columns))
        return _last_opened[1]
    return None
