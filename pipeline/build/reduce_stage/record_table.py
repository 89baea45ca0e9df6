"""Convert rows of records/ to an Arrow table, and add the columns with values from headers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges, gather_runs, number_array
from pipeline.build.arrays.header_arrays import (
    HEADER_ARRAYS,
    full_headers,
    text_array,
    words_array,
)
from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.build.exclusion.exclusion_index import ExclusionIndex
from pipeline.build.reduce_stage.record_rows import RecordRows
from pipeline.inputs.headers import HeaderColumns, unpack_headers
from schemas.records import EXCLUSION_KINDS, Status, records_schema
from schemas.shard import SPLITS


def header_table(headers: HeaderColumns) -> pa.Table:
    """Return the columns of records/ with values from headers."""
    schema = records_schema()
    return pa.table(
        [array(headers) for array in HEADER_ARRAYS.values()],
        schema=pa.schema([schema.field(name) for name in HEADER_ARRAYS]),
    )


def match_columns(keys: NDArray[np.int64], index: ExclusionIndex | None) -> list[pa.Array]:
    """Return the columns of records/ that say why records are excluded: kind, id and file.

    Args:
        keys: int64[N], key of each record's match (see `match_keys`), -1 for none.
        index: the build's exclusions, or None if no record is excluded.
    """
    found = np.flatnonzero(keys >= 0)
    distinct, code = np.unique(keys[found], return_inverse=True)
    matches = [] if index is None else [index.match(key) for key in distinct.tolist()]
    ids = [match.id for match in matches]
    edges = np.cumsum([0, *map(len, ids)], dtype=np.int64)
    begin, end = np.zeros(keys.size, dtype=np.int64), np.zeros(keys.size, dtype=np.int64)
    begin[found], end[found] = edges[:-1][code], edges[1:][code]
    texts = gather_runs(np.frombuffer(b"".join(ids), dtype=np.uint8), begin, end, pa.binary())
    files = sorted({match.file for match in matches})
    kind, file = np.full(keys.size, -1), np.full(keys.size, -1)
    kind[found] = np.array([EXCLUSION_KINDS.index(match.kind) for match in matches], int)[code]
    file[found] = np.array([files.index(match.file) for match in matches], int)[code]
    return [
        words_array(kind, EXCLUSION_KINDS),
        text_array(*bytes_and_edges(texts), stated=keys >= 0),
        words_array(file, files),
    ]


def record_table(
    rows: RecordRows,
    names: tuple[str, ...],
    *,
    keep_header: bool = False,
    exclusions: ExclusionIndex | None = None,
) -> pa.Table:
    """Return rows in the schema of records/, without the columns of --metadata.

    Args:
        names: names of the inputs. `rows.source` has indices into this tuple.
        keep_header: True to add the column of full headers.
        exclusions: the build's exclusions, or None if no row is excluded.
    """
    ids = bytes_and_edges(rows.id)
    headers = unpack_headers(*ids, *bytes_and_edges(rows.stated))
    return pa.table(
        [
            number_array(rows.ordinal),
            text_array(*ids),
            words_array(rows.source, names),
            number_array(rows.offset),
            number_array(rows.residues),
            number_array(rows.unknown),
            pa.Array.from_buffers(
                pa.binary(16),
                len(rows),
                [None, pa.py_buffer(np.ascontiguousarray(rows.hash, dtype=HASH))],
            ),
            words_array(rows.split, SPLITS),
            words_array(rows.shard, rows.shard_names),
            number_array(rows.bucket, valid=rows.shard >= 0),
            words_array(rows.status, tuple(Status)),
            number_array(rows.duplicate_of, valid=rows.duplicate_of >= 0),
            number_array(rows.cluster, valid=rows.cluster != 0),
            *match_columns(rows.match, exclusions),
            *header_table(headers).columns,
            *([full_headers(*ids, headers.description)] if keep_header else []),
        ],
        schema=records_schema(keep_header=keep_header),
    )
