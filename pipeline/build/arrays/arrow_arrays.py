"""Convert numpy arrays to Arrow arrays and back.

This module does not use `pyarrow.compute`, because its import takes 0.2 s in every process. It
calls `pa.array` only for empty columns: if pandas is installed, `pa.array` imports pandas, which
also takes 0.2 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.bucket_kernel import gather


def gather_runs(
    values: NDArray[np.uint8], begin: NDArray[np.int64], end: NDArray[np.int64], kind: pa.DataType
) -> pa.Array:
    """Return the slices values[begin[i]:end[i]] as an Arrow array of binary or large_binary.

    Args:
        values: uint8[T], bytes of all slices.
        begin, end: int64[N], index of each slice's first byte, and the index after its last byte.
        kind: type of the result, binary or large_binary.
    """
    offsets = np.concatenate(([0], np.cumsum(end - begin))).astype(
        np.int64 if kind == pa.large_binary() else np.int32
    )
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    gather(values, begin, end, out)
    return pa.Array.from_buffers(kind, begin.size, [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def number_array(values: NDArray[Any], *, valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers as an Arrow array of the same type. A contiguous numpy array is not copied.

    Args:
        valid: bool[N], False for null. By default no value is null.
    """
    nulls = (
        None
        if valid is None or valid.all()
        else pa.py_buffer(np.packbits(valid, bitorder="little"))
    )
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype),
        values.size,
        [nulls, pa.py_buffer(np.ascontiguousarray(values))],
    )


def string_array(words: Sequence[str]) -> pa.Array:
    """Return words as a string array."""
    encoded = [word.encode() for word in words]
    edges = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(edges), pa.py_buffer(b"".join(encoded))]
    )


def bytes_and_edges(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes (not copied) and the edges of a binary or large_binary array.

    Returns:
        uint8[T], bytes of all values; int64[N + 1], edges. Value i is bytes[edges[i]:edges[i + 1]].
    """
    if len(array) == 0:
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    width = np.int64 if array.type == pa.large_binary() else np.int32
    edges = np.frombuffer(array.buffers()[1], dtype=width)[
        array.offset : array.offset + len(array) + 1
    ]
    data = array.buffers()[2]
    values = np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return values[edges[0] :], edges.astype(np.int64) - edges[0]


def take_bytes(array: pa.Array, indices: NDArray[np.int64]) -> pa.Array:
    """Return the values of a binary or large_binary array at `indices`, int64[M]."""
    values, edges = bytes_and_edges(array)
    return gather_runs(values, edges[:-1][indices], edges[1:][indices], array.type)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def valid(array: pa.Array) -> NDArray[np.bool_]:
    """Return a mask of the values that are not null, bool[N].

    pyarrow's `is_valid` would import pyarrow.compute, which takes 0.2 s.
    """
    if not array.null_count:
        return np.ones(len(array), dtype=np.bool_)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], dtype=np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)
