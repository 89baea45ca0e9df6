"""Sort the table of --metadata by the hashes of its keys (accessions or ids), in bounded memory.

1. Read the table in runs of about RUN_BYTES. Sort each run by the 64-bit hash of the keys, and
   append it to a temporary file.
2. Divide the hashes into ranges of about RUN_BYTES. For each range, collect its rows from all runs,
   sort them, refuse keys that occur twice, and write the rows as a batch of the work file.

The work file is an Arrow file. Its columns are the hash, the row's number in the table, the key and
the other columns of the table. The key's column has an empty name. Equal hashes are in one batch.
The sort needs about 0.5 GB of memory for any table, and disk space for two copies of the table.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges, number_array
from pipeline.build.named_files.metadata import lookup
from pipeline.build.named_files.metadata.column_types import TextTypes, text_array
from pipeline.build.named_files.metadata.table_file import TableFile, table_file
from pipeline.build.named_files.named_file import NamedFile
from pipeline.build.task_results import PreparedFile, WorkFile
from pipeline.inputs.find import unchanged
from pipeline.storage.atomic_write import written_atomically
from pipeline.storage.folder import Folder
from schemas.errors import InputError
from schemas.records import ColumnType, arrow_type

RUN_BYTES = 32 << 20
"""Approximate number of bytes of the table that are sorted at a time."""
_HASH: Final = "\nhash"
_ROW: Final = "\nrow"
"""Names of columns in the files that this module writes. They begin with a line break, so that they
differ from the names of all columns of the table."""


def prepare_metadata(file: NamedFile, name: str, work: Folder) -> PreparedFile:
    """Write the sorted table as the work file `name`.

    Raises:
        InputError: the table cannot be read, a row has no key, or two rows have the same key.
        BuildError: the work file cannot be written.
    """
    table = table_file(file)
    with tempfile.TemporaryDirectory(
        prefix="thdpack-spill-", dir=work.where() if work.local else None
    ) as scratch:
        path = Path(scratch) / name
        rows, types = _write_runs(table, path)
        if not rows:
            raise InputError("the table has no rows", source=file.url)
        if not unchanged(table.source):
            raise InputError(
                "changed while it was read, or since the build was planned; run the same command "
                "again",
                source=file.url,
            )
        content = _Content(types)
        with (
            work.written(name, durable=False) as out,
            pa.ipc.new_file(out, _work_schema(types)) as writer,
        ):
            for batch in _merged(table, types, path):
                content.add(batch)
                writer.write_batch(batch)
    return PreparedFile(
        option=file.option,
        name=file.name,
        bytes=file.bytes,
        file=WorkFile(name=name, bytes=out.bytes, xxh3_128=out.xxh3_128),
        rows=rows,
        xxh3_128=content.digest,
        columns=types,
    )


def _work_schema(types: Mapping[str, ColumnType]) -> pa.Schema:
    columns = [pa.field(name, arrow_type(kind)) for name, kind in types.items()]
    return _with_hash([pa.field("", pa.string()), *columns])


def _with_hash(columns: list[pa.Field]) -> pa.Schema:
    """Return a schema that begins with the columns of hashes and row numbers."""
    return pa.schema([pa.field(_HASH, pa.uint64()), pa.field(_ROW, pa.int64()), *columns])


def _write_runs(table: TableFile, path: Path) -> tuple[int, dict[str, ColumnType]]:
    """Write the rows in sorted runs; return the number of rows, and the types of the columns.

    Raises:
        InputError: the table cannot be read, or a row has no key.
        BuildError: the disk is full.
    """
    found = TextTypes(table.columns)
    types = None if table.is_text else table.types()[0]
    kinds = [pa.string() if types is None else arrow_type(types[name]) for name in table.columns]
    fields = [pa.field(name, kind) for name, kind in zip(table.columns, kinds, strict=True)]
    schema = _with_hash([pa.field("", pa.string()), *fields])
    rows = 0
    with (
        written_atomically(path, scratch=path.parent, durable=False) as file,
        pa.ipc.new_file(file, schema) as writer,
    ):
        for run in _runs(table):
            if table.is_text:
                found.add(run)
            writer.write_batch(_sorted_run(table, run, rows, schema))
            rows += run.num_rows
            pa.default_memory_pool().release_unused()
    return rows, found.types if types is None else types


def _runs(table: TableFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table in batches of about RUN_BYTES."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in table.batches():
        waiting.append(batch)
        size += batch.nbytes
        if size >= RUN_BYTES:
            yield _one_batch(waiting)
            waiting, size = [], 0
    if size:
        yield _one_batch(waiting)


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def _sorted_run(
    table: TableFile, run: pa.RecordBatch, first: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Return a run with hashes and row numbers, sorted by hash.

    Args:
        first: number of the run's first row.
    Raises:
        InputError: a row has no key.
    """
    keys = run.column(0)
    missing = pc.fill_null(pc.equal(pc.binary_length(keys), 0), True)
    if pc.any(missing).as_py():
        row = first + pc.index(missing, True).as_py()
        raise InputError(
            f"{_place(table, row)} has no value in the key column {table.key!r}: complete or "
            "remove the row",
            source=table.source.url,
            line=table.line(row),
        )
    hashes = lookup.key_hashes(*bytes_and_edges(keys))
    order = np.argsort(hashes, kind="stable")
    return pa.RecordBatch.from_arrays(
        [
            number_array(hashes[order]),
            number_array(first + order),
            *(column.take(number_array(order)) for column in run.columns),
        ],
        schema=schema,
    )


def _place(table: TableFile, row: int) -> str:
    return "this row" if table.is_text else f"row {row + 1:,}"


def _merged(
    table: TableFile, types: Mapping[str, ColumnType], path: Path
) -> Iterator[pa.RecordBatch]:
    """Yield all rows sorted by hash and key, in batches of about RUN_BYTES.

    Args:
        path: file of the sorted runs.
    Raises:
        InputError: two rows have the same key.
    """
    schema = _work_schema(types)
    edges = _range_edges(path)
    for begin, end in itertools.pairwise(edges.T.tolist()):
        # map the file again for each range, so that the pages of earlier ranges take no memory
        with pa.memory_map(str(path)) as mapped:
            runs = pa.ipc.open_file(mapped)
            parts = [
                runs.get_batch(i).slice(first, last - first)
                for i, (first, last) in enumerate(zip(begin, end, strict=True))
                if last > first
            ]
            if not parts:
                continue
            rows = _sorted_range(table, _one_batch(parts))
        columns = [
            text_array(rows.column(name), kind) if table.is_text else rows.column(name)
            for name, kind in types.items()
        ]
        del parts
        yield pa.RecordBatch.from_arrays([*rows.columns[:3], *columns], schema=schema)
        pa.default_memory_pool().release_unused()


def _range_edges(path: Path) -> NDArray[np.int64]:
    """Divide the hashes into ranges of about RUN_BYTES.

    Returns:
        int64[runs, ranges + 1]; range i has the rows edges[r, i] … edges[r, i + 1] - 1 of run r.
    """
    ranges = max(1, -(-path.stat().st_size // RUN_BYTES))
    ends = np.array([(i << 64) // ranges - 1 for i in range(1, ranges + 1)], dtype=np.uint64)
    edges = []
    with pa.memory_map(str(path)) as mapped:
        runs = pa.ipc.open_file(mapped)
        for i in range(runs.num_record_batches):
            hashes = runs.get_batch(i).column(_HASH).to_numpy()
            edges.append(np.concatenate(([0], np.searchsorted(hashes, ends, side="right"))))
    return np.array(edges, dtype=np.int64)


def _sorted_range(table: TableFile, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows sorted by hash and key.

    Raises:
        InputError: two rows have the same key.
    """
    hashes = rows.column(_HASH).to_numpy()
    order = np.argsort(hashes, kind="stable")
    if (hashes[order][1:] == hashes[order][:-1]).any():
        # equal keys, or keys that have the same hash by chance
        keys = rows.column(2).to_pylist()
        order = np.array(sorted(range(len(keys)), key=lambda i: (hashes[i], keys[i])))
        for a, b in zip(order[:-1].tolist(), order[1:].tolist(), strict=True):
            if keys[a] == keys[b]:
                _refuse_twice(table, keys[a], rows.column(_ROW).take(pa.array([a, b])).to_pylist())
    return rows.take(number_array(order))


def _refuse_twice(table: TableFile, key: str, rows: list[int]) -> None:
    """Refuse two rows with the same key.

    Raises:
        InputError: always. The message names both rows.
    """
    first, second = sorted(rows)
    lines = table.line(first), table.line(second)
    where = (
        f"line {lines[0]:,} and line {lines[1]:,}"
        if lines[0] is not None and lines[1] is not None
        else f"row {first + 1:,} and row {second + 1:,}"
    )
    raise InputError(
        f"{where} have the same {table.key}, {key!r}: remove one of them",
        source=table.source.url,
        line=lines[1],
    )


class _Content:
    """Digest of the sorted rows. The digest does not depend on how the rows are divided into
    batches."""

    def __init__(self, types: Mapping[str, ColumnType]) -> None:
        self._types = {"": "string", **types}
        self._digests = {name: [xxhash.xxh3_128() for _ in range(3)] for name in self._types}

    @property
    def digest(self) -> str:
        described = [
            [name, kind, *(part.hexdigest() for part in self._digests[name])]
            for name, kind in self._types.items()
        ]
        return xxhash.xxh3_128_hexdigest(json.dumps(described).encode())

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows. For each column, hash a mask of the nulls, and then the values. The values of a
        column of texts are hashed in two parts: the sizes of the texts, and their bytes."""
        for name, kind in self._types.items():
            stated, sizes, values = self._digests[name]
            column = batch.column(name)
            stated.update(_octets(pc.is_valid(column)))
            if kind == "string":
                letters, edges = bytes_and_edges(pc.fill_null(column, ""))
                sizes.update(np.diff(edges).data)
                values.update(letters[: edges[-1]].data)
            else:
                values.update(_octets(pc.fill_null(column, pa.scalar(0).cast(column.type))))


def _octets(column: pa.Array) -> bytes:
    """Return the bytes of a column without nulls. A boolean takes a whole byte."""
    return bytes(np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).data)
