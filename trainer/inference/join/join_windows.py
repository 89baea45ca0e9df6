"""Join the results of windows into results of records."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from trainer.inference.join.window_index import WindowIndex
from trainer.inference.parts import Result, as_stored

_LARGEST_EXPONENT: Final = 700.0
"""Upper limit of the exponent of `exp_mean`. Its exponential fits in a float64."""


def per_record(
    values: NDArray[Any], first: NDArray[np.int64], last: NDArray[np.int64]
) -> NDArray[Any]:
    """Return the sum of the values of each record's windows; 0 for a record without windows.

    Args:
        values: [N, …], a value for each window of the index.
        first, last: int64[M], where the windows of each record begin and end.
    """
    sums = np.zeros((first.size, *values.shape[1:]), dtype=values.dtype)
    have = last > first
    if have.any():
        most = int((last - first).max())
        for number in range(most):
            rows = first + number < last
            sums[rows] += values[first[rows] + number]
    return sums


def joined(
    result: Result, index: WindowIndex, first: NDArray[np.int64], last: NDArray[np.int64]
) -> pa.Array:
    """Return the values of records; see `Join`."""
    counts = last - first
    windows = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    valid = counts > 0
    ends = np.cumsum(counts)
    if result.join == "concatenate":
        sizes = index.residues[windows]
        values = _rows(result, index, windows, sizes)
        return result.lists(values, per_record(index.residues, first, last), valid)
    values = _rows(result, index, windows, None)
    if counts.max(initial=0) > 1:  # join windows in float64
        exact = _wide(values, result.dtype)
        if result.join in ("mean", "exp_mean"):
            weights = index.residues[windows].astype(np.float64)
            total = per_record(weights, ends - counts, ends)
            scale = weights / np.repeat(np.maximum(total, 1), counts)
            exact = exact * scale.reshape(-1, *[1] * (exact.ndim - 1))
        found = _narrow(per_record(exact, ends - counts, ends), result.dtype)
        found[counts == 1] = values[(ends - 1)[counts == 1]]  # as computed, without rounding again
    else:
        found = np.zeros((counts.size, *values.shape[1:]), dtype=values.dtype)
        found[valid] = values
    if result.join == "exp_mean":
        found = np.exp(np.minimum(found, _LARGEST_EXPONENT))
    return result.array(found, valid)


def _rows(
    result: Result, index: WindowIndex, windows: NDArray[np.int64], sizes: NDArray[np.int64] | None
) -> NDArray[Any]:
    """Return the values of windows, in their order.

    Args:
        sizes: number of rows of values of each window (`concatenate`); None if each has one.
    """
    dtype = result.value_type.to_pandas_dtype()
    ends = np.arange(1, windows.size + 1) if sizes is None else np.cumsum(sizes)
    total = int(ends[-1]) if windows.size else 0
    shape = (total, result.size) if result.size else (total,)
    values = np.empty(shape, dtype=dtype)
    for batch, chosen, rows in index.batches(windows):
        column = batch.column(result.name)
        if sizes is None:
            values[chosen] = _numbers(column, dtype, result.size)[rows]
            continue
        offsets, inner = column.offsets.to_numpy(), _numbers(column.values, dtype, result.size)
        for place, row in zip(chosen.tolist(), rows.tolist(), strict=True):
            part = inner[offsets[row] : offsets[row + 1]]
            values[ends[place] - len(part) : ends[place]] = part
    return values


def _numbers(column: pa.Array, dtype: Any, size: int) -> NDArray[Any]:
    """Return the values of a column without a copy, [N] or [N, size]."""
    if not size:
        return np.asarray(column.to_numpy(zero_copy_only=True))
    return np.asarray(column.values.to_numpy(zero_copy_only=True)).reshape(-1, size)


def _wide(values: NDArray[Any], dtype: torch.dtype) -> NDArray[np.float64]:
    if dtype == torch.bfloat16:
        return torch.from_numpy(values).view(torch.bfloat16).double().numpy()
    return values.astype(np.float64)


def _narrow(values: NDArray[np.float64], dtype: torch.dtype) -> NDArray[Any]:
    tensor = torch.from_numpy(values).to(dtype)
    return as_stored(tensor)
