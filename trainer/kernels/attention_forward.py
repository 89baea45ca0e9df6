"""Triton kernel of the forward pass of attention. `attention.py` launches it."""

from __future__ import annotations

import triton
import triton.language as tl

from trainer.kernels.attention_rows import _block_rows, _load, _store, _tile


@triton.jit
def _forward_block(
    q,
    k,
    v,
    start,
    end,
    row_stride,
    scale,
    total,
    top,
    sums,
    half: tl.constexpr,
    padded: tl.constexpr,
    other: tl.constexpr,
    masked: tl.constexpr,
):
    """Process one block of keys. Return the running output, the largest score so far, and the
    running sum of the softmax.
    """
    rows, beyond = _block_rows(start, end, other, masked)
    keys = _load(k, rows, row_stride, half, padded)
    scores = tl.dot(q, tl.trans(keys))
    if masked:
        scores = tl.where(beyond[None, :], -float("inf"), scores)
    higher = tl.maximum(top, tl.max(scores, 1) * scale)
    p = tl.math.exp2(scores * scale - higher[:, None])
    shrink = tl.math.exp2(top - higher)
    sums = sums * shrink + tl.sum(p, 1)
    values = _load(v, rows, row_stride, half, padded)
    total = tl.dot(p.to(values.dtype), values, total * shrink[:, None])
    return total, higher, sums


@triton.jit
def _attention_forward(
    qkv,
    out,
    logsum,
    tiles,
    tokens,
    scale,
    heads: tl.constexpr,
    half: tl.constexpr,
    padded: tl.constexpr,
    own: tl.constexpr,
    other: tl.constexpr,
):
    head = tl.program_id(1)
    begin, end, first = _tile(tiles)
    if first >= end:
        return
    row_stride = 6 * heads * half
    q = qkv + head * (6 * half)
    k, v = q + 2 * half, q + 4 * half
    rows = first + tl.arange(0, own)
    inside = rows < end
    queries = _load(q, tl.minimum(rows, end - 1), row_stride, half, padded)
    total = tl.zeros((own, 2 * padded), tl.float32)
    top = tl.full((own,), -float("inf"), tl.float32)
    sums = tl.zeros((own,), tl.float32)
    whole = begin + (end - begin) // other * other
    for start in range(begin, whole, other):
        total, top, sums = _forward_block(
            queries,
            k,
            v,
            start,
            end,
            row_stride,
            scale,
            total,
            top,
            sums,
            half,
            padded,
            other,
            False,
        )
    if whole < end:
        total, top, sums = _forward_block(
            queries,
            k,
            v,
            whole,
            end,
            row_stride,
            scale,
            total,
            top,
            sums,
            half,
            padded,
            other,
            True,
        )
    tl.store(logsum + head * tokens + rows, top + tl.math.log2(sums), mask=inside)
    x = total / sums[:, None]
    _store(out + head * (2 * half), x, rows, inside, 2 * heads * half, half, padded)
