"""Convert rows of records/ to the Arrow table that is written, with the columns of headers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import (
    bytes_and_edges,
    gather_runs,
    number_array,
    string_array,
)
from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.build.reduce_stage.record_rows import RecordRows
from pipeline.inputs.headers import Text, parse_headers
from schemas.records import DATABASES, Status, records_schema
from schemas.shard import SPLITS


def record_table(rows: RecordRows, names: tuple[str, ...]) -> pa.Table:
    """Return rows in the schema of records/.

    Args:
        names: names of the inputs, in the order of source indices.
    """
    ids, descriptions = bytes_and_edges(rows.id), bytes_and_edges(rows.description)
    headers = parse_headers(*ids, *descriptions)
    return pa.table(
        [
            number_array(rows.ordinal),
            _all_texts(*ids),
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
            _texts(headers.accession),
            _texts(headers.name),
            number_array(headers.taxid, valid=headers.taxid >= 0),
            _texts(headers.organism),
            _texts(headers.gene),
            number_array(headers.pe, valid=headers.pe >= 0),
            _booleans(headers.fragment),
            number_array(headers.cluster_size, valid=headers.cluster_size >= 0),
            _words(headers.database, DATABASES),
        ],
        schema=records_schema(),
    )


def _words(codes: NDArray[Any], words: tuple[str, ...] | list[str]) -> pa.Array:
    """Return codes as a dictionary array of words; -1 is null."""
    return pa.DictionaryArray.from_arrays(
        number_array(codes.astype(np.int32), valid=codes >= 0), string_array(words)
    )


def _booleans(values: NDArray[np.bool_]) -> pa.Array:
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), values.size, [None, pa.py_buffer(bits)])


def _texts(texts: Text) -> pa.Array:
    """Return texts as strings. Empty texts are null."""
    array = gather_runs(texts.values, texts.begin, texts.end, pa.binary())
    values, edges = bytes_and_edges(array)
    return _all_texts(values, edges, stated=texts.begin < texts.end)


def _all_texts(
    values: NDArray[np.uint8],
    edges: NDArray[np.int64],
    stated: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Return texts as strings; bytes that are not UTF-8 become escapes such as \\xff.

    Args:
        values: uint8[T], texts end to end.
        edges: int64[N + 1], edges of the texts.
        stated: bool[N], False for null.
    """
    nulls = (
        None
        if stated is None or stated.all()
        else pa.py_buffer(np.packbits(stated, bitorder="little"))
    )
    offsets, data = pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(values)
    text = pa.Array.from_buffers(pa.string(), edges.size - 1, [nulls, offsets, data])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raw = pa.Array.from_buffers(pa.binary(), edges.size - 1, [nulls, offsets, data])
        return pa.array(
            [
                None if value is None else value.decode("utf-8", "backslashreplace")
                for value in raw.to_pylist()
            ],
            pa.string(),
        )
    return text
