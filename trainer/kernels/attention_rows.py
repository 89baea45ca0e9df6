"""Triton functions that load and store rows of a head, for the forward and the backward pass of
attention. A row holds the values of one token, and `half` is half the size of a head.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _columns(half: tl.constexpr, padded: tl.constexpr):
    """Return the column indices of a head, and a mask of the columns that are not padding. Each
    half of the head is padded to a power of two.
    """
    c = tl.arange(0, 2 * padded)
    if half == padded:
        return c, c < 2 * padded
    return (c // padded) * half + c % padded, c % padded < half


@triton.jit
def _tile(tiles):
    """Return begin and end of this program's sequence, and the first row of its block."""
    tile = tl.program_id(0)
    return tl.load(tiles + 3 * tile), tl.load(tiles + 3 * tile + 1), tl.load(tiles + 3 * tile + 2)


@triton.jit
def _block_rows(start, end, other: tl.constexpr, masked: tl.constexpr):
    """Return the indices of a block's rows, and a mask of the rows beyond the end of the sequence.
    If `masked` is true, the index of the sequence's last row replaces the indices beyond the end.
    """
    rows = start + tl.arange(0, other)
    beyond = rows >= end
    if masked:
        rows = tl.minimum(rows, end - 1)
    return rows, beyond


@triton.jit
def _load(base, rows, row_stride, half: tl.constexpr, padded: tl.constexpr):
    """Load rows of a head, [rows, 2 × padded]."""
    columns, column_mask = _columns(half, padded)
    at = base + rows[:, None] * row_stride + columns[None, :]
    if half == padded:
        return tl.load(at)
    return tl.load(at, mask=column_mask[None, :], other=0.0)


@triton.jit
def _store(base, x, rows, inside, row_stride, half: tl.constexpr, padded: tl.constexpr):
    """Store x [rows, 2 × padded] as rows of a head. Only rows inside the sequence are written."""
    columns, column_mask = _columns(half, padded)
    at = base + rows[:, None] * row_stride + columns[None, :]
    mask = inside[:, None] & column_mask[None, :]
    tl.store(at, x.to(base.dtype.element_ty), mask=mask)


@triton.jit
def _store_rotated_back(
    base, x, rows, inside, row_stride, cos, sin, half: tl.constexpr, padded: tl.constexpr
):
    """Rotate back and store x [rows, 2 × padded], a gradient of rotated values. The stored values
    are the gradient of the values before rotation.
    """
    first, second = tl.split(tl.permute(tl.reshape(x, (x.shape[0], 2, padded)), (0, 2, 1)))
    column = tl.arange(0, padded)[None, :]
    mask = inside[:, None] & (column < half)
    c = tl.load(cos + rows[:, None] * half + column, mask=mask, other=0.0)
    s = tl.load(sin + rows[:, None] * half + column, mask=mask, other=0.0)
    at = base + rows[:, None] * row_stride + column
    tl.store(at, (first * c + second * s).to(base.dtype.element_ty), mask=mask)
    tl.store(at + half, (second * c - first * s).to(base.dtype.element_ty), mask=mask)
