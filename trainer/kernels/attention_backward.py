"""Triton kernels of the backward pass of attention. `attention.py` launches them."""

from __future__ import annotations

import triton
import triton.language as tl

from trainer.kernels.attention_rows import (
    _block_rows,
    _load,
    _store,
    _store_rotated_back,
    _tile,
)


@triton.jit
def _queries_block(
    q,
    grad,
    k,
    v,
    start,
    end,
    row_stride,
    scale,
    logsum,
    delta,
    total,
    half: tl.constexpr,
    padded: tl.constexpr,
    other: tl.constexpr,
    masked: tl.constexpr,
):
    rows, beyond = _block_rows(start, end, other, masked)
    keys = _load(k, rows, row_stride, half, padded)
    p = tl.math.exp2(tl.dot(q, tl.trans(keys)) * scale - logsum[:, None])
    if masked:
        p = tl.where(beyond[None, :], 0.0, p)
    values = _load(v, rows, row_stride, half, padded)
    ds = p * (tl.dot(grad, tl.trans(values)) - delta[:, None])
    return tl.dot(ds.to(keys.dtype), keys, total)


@triton.jit
def _attention_backward_queries(
    qkv,
    out,
    grad,
    dqkv,
    logsum,
    delta,
    cos,
    sin,
    tiles,
    tokens,
    scale,
    softmax_scale,
    heads: tl.constexpr,
    half: tl.constexpr,
    padded: tl.constexpr,
    own: tl.constexpr,
    other: tl.constexpr,
):
    """Compute dQ of a block of queries. Also write Σ dO·O of each query into `delta`, for
    `_attention_backward_keys`.
    """
    head = tl.program_id(1)
    begin, end, first = _tile(tiles)
    if first >= end:
        return
    row_stride, out_stride = 6 * heads * half, 2 * heads * half
    q = qkv + head * (6 * half)
    k, v = q + 2 * half, q + 4 * half
    rows = first + tl.arange(0, own)
    inside = rows < end
    at = tl.minimum(rows, end - 1)
    queries = _load(q, at, row_stride, half, padded)
    grads = _load(grad + head * (2 * half), at, out_stride, half, padded)
    outs = _load(out + head * (2 * half), at, out_stride, half, padded)
    deltas = tl.sum(outs.to(tl.float32) * grads.to(tl.float32), 1)
    tl.store(delta + head * tokens + rows, deltas, mask=inside)
    logsums = tl.load(logsum + head * tokens + at)
    total = tl.zeros((own, 2 * padded), tl.float32)
    whole = begin + (end - begin) // other * other
    for start in range(begin, whole, other):
        total = _queries_block(
            queries,
            grads,
            k,
            v,
            start,
            end,
            row_stride,
            scale,
            logsums,
            deltas,
            total,
            half,
            padded,
            other,
            False,
        )
    if whole < end:
        total = _queries_block(
            queries,
            grads,
            k,
            v,
            whole,
            end,
            row_stride,
            scale,
            logsums,
            deltas,
            total,
            half,
            padded,
            other,
            True,
        )
    _store_rotated_back(
        dqkv + head * (6 * half),
        total * softmax_scale,
        rows,
        inside,
        row_stride,
        cos,
        sin,
        half,
        padded,
    )


@triton.jit
def _keys_block(
    q,
    grad,
    keys,
    values,
    start,
    end,
    row_stride,
    out_stride,
    scale,
    logsum,
    delta,
    dk,
    dv,
    half: tl.constexpr,
    padded: tl.constexpr,
    other: tl.constexpr,
    masked: tl.constexpr,
):
    rows, beyond = _block_rows(start, end, other, masked)
    queries = _load(q, rows, row_stride, half, padded)
    p = tl.math.exp2(tl.dot(keys, tl.trans(queries)) * scale - tl.load(logsum + rows)[None, :])
    if masked:
        p = tl.where(beyond[None, :], 0.0, p)
    grads = _load(grad, rows, out_stride, half, padded)
    dv = tl.dot(p.to(grads.dtype), grads, dv)
    ds = p * (tl.dot(values, tl.trans(grads)) - tl.load(delta + rows)[None, :])
    dk = tl.dot(ds.to(queries.dtype), queries, dk)
    return dk, dv


@triton.jit
def _attention_backward_keys(
    qkv,
    grad,
    dqkv,
    logsum,
    delta,
    cos,
    sin,
    tiles,
    tokens,
    scale,
    softmax_scale,
    heads: tl.constexpr,
    half: tl.constexpr,
    padded: tl.constexpr,
    own: tl.constexpr,
    other: tl.constexpr,
):
    """Compute dK and dV of a block of keys."""
    head = tl.program_id(1)
    begin, end, first = _tile(tiles)
    if first >= end:
        return
    row_stride, out_stride = 6 * heads * half, 2 * heads * half
    q = qkv + head * (6 * half)
    rows = first + tl.arange(0, own)
    inside = rows < end
    at = tl.minimum(rows, end - 1)
    keys = _load(q + 2 * half, at, row_stride, half, padded)
    values = _load(q + 4 * half, at, row_stride, half, padded)
    dk = tl.zeros((own, 2 * padded), tl.float32)
    dv = tl.zeros((own, 2 * padded), tl.float32)
    logsum, delta, grad = logsum + head * tokens, delta + head * tokens, grad + head * (2 * half)
    whole = begin + (end - begin) // other * other
    for start in range(begin, whole, other):
        dk, dv = _keys_block(
            q,
            grad,
            keys,
            values,
            start,
            end,
            row_stride,
            out_stride,
            scale,
            logsum,
            delta,
            dk,
            dv,
            half,
            padded,
            other,
            False,
        )
    if whole < end:
        dk, dv = _keys_block(
            q,
            grad,
            keys,
            values,
            whole,
            end,
            row_stride,
            out_stride,
            scale,
            logsum,
            delta,
            dk,
            dv,
            half,
            padded,
            other,
            True,
        )
    _store(dqkv + head * (6 * half) + 4 * half, dv, rows, inside, row_stride, half, padded)
    _store_rotated_back(
        dqkv + head * (6 * half) + 2 * half,
        dk * softmax_scale,
        rows,
        inside,
        row_stride,
        cos,
        sin,
        half,
        padded,
    )
