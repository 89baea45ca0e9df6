"""Files of retired/: the ordinals and ids of the records that a generation retired.

`thdpack append --retire` writes one file, retired/BUILD.parquet. BUILD is the build of the
generation. The manifests of this and of all later generations name the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges, gather_runs, number_array, one_chunk
from pipeline.reader.arrow_columns import numbers
from pipeline.reader.mapped_shard import checked_content
from pipeline.storage.folder import Folder
from schemas.errors import DatasetError, StoreError
from schemas.manifest import Manifest
from schemas.manifest_entries import RecordsEntry
from schemas.records import RETIRED, retired_schema
from schemas.text.phrases import REBUILD

_ROW_GROUP: Final = 1 << 20
"""Rows in a row group. The ids of a row group are one Arrow array of at most 2 GiB."""


@dataclass(frozen=True, slots=True)
class RetiredFile:
    """A file of retired/.

    generation: number of the generation that retired the records
    before: number of records of the previous generation; all ordinals in the file are smaller
    """

    generation: int
    before: int
    entry: RecordsEntry


def retired_files(manifest: Manifest) -> Iterator[RetiredFile]:
    """Yield the files of retired/, in the order of their generations."""
    builds = [*(entry.build for entry in manifest.history), manifest.build]
    numbers_of = {retired_name(build): number for number, build in enumerate(builds, 1)}
    for entry in manifest.retired:
        number = numbers_of[entry.name]
        yield RetiredFile(number, manifest.history[number - 2].records, entry)


def retired_name(build: str) -> str:
    """Return the name of the file of retired/ that a build writes."""
    return f"{RETIRED}/{build}.parquet"


def write_retired(
    out: Folder, build: str, ordinal: NDArray[np.int64], ids: pa.Array
) -> RecordsEntry:
    """Write the records that a generation retires.

    Args:
        build: build of the generation.
        ordinal: int64[N], ascending.
        ids: large_binary[N].
    Raises:
        BuildError: the file cannot be written.
    """
    name, schema = retired_name(build), retired_schema()
    values, edges = bytes_and_edges(ids)
    with (
        out.written(name) as file,
        pq.ParquetWriter(file, schema, compression="lz4", use_dictionary=False) as writer,
    ):
        for first in range(0, ordinal.size, _ROW_GROUP):
            own = edges[first : first + _ROW_GROUP + 1]
            texts = gather_runs(values, own[:-1], own[1:], pa.binary())
            columns = [
                number_array(ordinal[first : first + _ROW_GROUP]),
                pa.Array.from_buffers(pa.string(), len(texts), texts.buffers()),
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return RecordsEntry(name=name, bytes=file.bytes, rows=ordinal.size, xxh3_128=file.xxh3_128)


def read_ordinals(out: Folder, file: RetiredFile) -> NDArray[np.int64]:
    """Check a file of retired/, and return the ordinals of its records, int64[N], ascending.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    return numbers(one_chunk(read_retired(out, file).column("ordinal")), np.int64)


def read_retired(out: Folder, file: RetiredFile) -> pa.Table:
    """Check a file of retired/, and return its rows.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    content = checked_content(out, file.entry)
    try:
        table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
        problem = _problem(table, file)
    except (pa.ArrowException, OSError) as error:
        problem = f"not a readable file of {RETIRED}/: {error}"
    if problem is not None:
        raise DatasetError(f"{out.where(file.entry.name)}: {problem}; {REBUILD}")
    return table


def _problem(table: pa.Table, file: RetiredFile) -> str | None:
    """Return the rule that a file of retired/ breaks, or None.

    Raises:
        pa.ArrowException: the content is damaged.
    """
    if not table.schema.equals(retired_schema()):
        return f"its columns are not those of {RETIRED}/"
    table.validate(full=True)
    if table.num_rows != file.entry.rows:
        return f"{table.num_rows} rows, the manifest says {file.entry.rows}"
    if table.column("ordinal").null_count or table.column("id").null_count:
        return "a row has no ordinal or no id"
    ordinal = numbers(one_chunk(table.column("ordinal")), np.int64)
    if (np.diff(ordinal) <= 0).any():
        return "its ordinals are not ascending"
    if ordinal.size and not 0 <= ordinal[0] <= ordinal[-1] < file.before:
        return f"an ordinal is outside 0..{file.before - 1}"
    return None


def retired_ordinals(out: Folder, manifest: Manifest) -> NDArray[np.int64]:
    """Return the ordinals of all retired records, int64[N], ascending.

    Raises:
        DatasetError: a file is missing or damaged.
    """
    parts = [read_ordinals(out, file) for file in retired_files(manifest)]
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


def retired_problems(out: Folder, manifest: Manifest) -> list[str]:
    """Return one line for each problem of the files of retired/.

    Raises:
        StoreError: a file could not be read.
    """
    problems, parts = [], [np.empty(0, dtype=np.int64)]
    for file in retired_files(manifest):
        try:
            parts.append(read_ordinals(out, file))
        except StoreError:
            raise
        except DatasetError as error:
            problems.append(str(error).removesuffix(f"; {REBUILD}"))
    ordinals = np.sort(np.concatenate(parts))
    twice = ordinals[1:][np.diff(ordinals) == 0]
    if twice.size:
        where = out.where(RETIRED)
        problems.append(f"{where}: record {twice[0]} is retired by two generations")
    return problems
