"""Convert texts, and the values that FASTA headers state, to Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import (
    bytes_and_edges,
    gather_runs,
    number_array,
    string_array,
)
from pipeline.inputs.headers import HeaderColumns, Text
from schemas.records import DATABASES

HEADER_ARRAYS: Final[dict[str, Callable[[HeaderColumns], pa.Array]]] = {
    "accession": lambda headers: _stated_texts(headers.accession),
    "name": lambda headers: _stated_texts(headers.name),
    "taxid": lambda headers: number_array(headers.taxid, valid=headers.taxid >= 0),
    "organism": lambda headers: _stated_texts(headers.organism),
    "gene": lambda headers: _stated_texts(headers.gene),
    "pe": lambda headers: number_array(headers.pe, valid=headers.pe >= 0),
    "fragment": lambda headers: _booleans(headers.fragment),
    "cluster_size": lambda headers: number_array(
        headers.cluster_size, valid=headers.cluster_size >= 0
    ),
    "database": lambda headers: words_array(headers.database, DATABASES),
}
"""Functions that make the columns of records/ with values from headers, by column name. A value
that a header does not state is null."""


def words_array(codes: NDArray[Any], words: Sequence[str]) -> pa.Array:
    """Return a dictionary array of the words at indices `codes`; the code -1 becomes null."""
    return pa.DictionaryArray.from_arrays(
        number_array(codes.astype(np.int32), valid=codes >= 0), string_array(words)
    )


def text_array(
    values: NDArray[np.uint8],
    edges: NDArray[np.int64] | NDArray[np.int32],
    stated: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Return texts as strings; bytes that are not UTF-8 become escapes such as \\xff.

    Args:
        values: uint8[T], texts end to end.
        edges: int64[N + 1] or int32[N + 1]; text i is values[edges[i]:edges[i + 1]].
        stated: bool[N], False for null; by default no text is null.
    """
    nulls = (
        None
        if stated is None or stated.all()
        else pa.py_buffer(np.packbits(stated, bitorder="little"))
    )
    buffers = [nulls, pa.py_buffer(edges.astype(np.int32, copy=False)), pa.py_buffer(values)]
    text = pa.Array.from_buffers(pa.string(), edges.size - 1, buffers)
    if values[edges[0] : edges[-1]].max(initial=0) < 128:  # ASCII
        return text
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raw = pa.Array.from_buffers(pa.binary(), edges.size - 1, buffers).to_pylist()
        return pa.array(
            [None if value is None else value.decode("utf-8", "backslashreplace") for value in raw],
            pa.string(),
        )
    return text


def full_headers(ids: NDArray[np.uint8], id_edges: NDArray[np.int64], rest: Text) -> pa.Array:
    """Return headers as strings. A header is the id, followed by a blank and the description if the
    record has one.

    rest: the descriptions
    """
    blank = ids.size + rest.values.size
    values = np.concatenate([ids, rest.values, np.frombuffer(b" ", dtype=np.uint8)])
    described = np.diff(rest.edges) > 0
    begin = np.full((id_edges.size - 1, 3), blank, dtype=np.int64)
    begin[:, 0], begin[:, 2] = id_edges[:-1], ids.size + rest.edges[:-1]
    end = begin.copy()
    end[:, 0], end[:, 1] = id_edges[1:], blank + described
    end[:, 2] = ids.size + rest.edges[1:]
    parts = gather_runs(values, begin.ravel(), end.ravel(), pa.large_binary())
    letters, edges = bytes_and_edges(parts)
    return text_array(letters, edges[::3])


def _stated_texts(texts: Text) -> pa.Array:
    """Return texts as strings. Empty texts are null."""
    return text_array(texts.values, texts.edges, stated=texts.edges[:-1] < texts.edges[1:])


def _booleans(values: NDArray[np.bool_]) -> pa.Array:
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), values.size, [None, pa.py_buffer(bits)])
