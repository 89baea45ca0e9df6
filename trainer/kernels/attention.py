"""Attention of packed sequences by Triton kernels, with the rotary embedding: made for many short sequences in a row.

cuDNN's THD attention is made for long ones. On a row of 16,384 tokens in sequences of 350 it spends more time beside its two main kernels than
they do work: it fills gradients, converts dQ, and computes Σ dO·O at a fraction of the memory's speed (docs/decisions/0006-speed.md has the figures).
Here the backward pass is two kernels (dQ, then dK and dV) that write the gradient of fused QKV where it belongs, already rotated back. Nothing is
added up in an order that may change, so a step gives the same bits each time.

Forward: online softmax by blocks of queries (Dao, FlashAttention-2, 2023); backward: recomputed from the logarithm of the softmax's sum, as there.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from trainer.kernels.rope import rotate_

LOG2_E: Final = 1.4426950408889634


BLOCK: Final = 64
"""Rows of a program's own block."""
FORWARD_BLOCK: Final = 64
BACKWARD_BLOCK: Final = 32
"""Rows of the blocks that a program goes through. These, warps and stages are the best for heads of 16 to 64 of all that were tried, within a few percent."""
WARPS: Final = 4
STAGES: Final = 3


@triton.jit
def _columns(half: tl.constexpr, padded: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where the numbers of a head stand, its halves padded to powers of two: places, and which of them exist."""
    c = tl.arange(0, 2 * padded)
    if half == padded:
        return c, c < 2 * padded
    return (c // padded) * half + c % padded, c % padded < half


@triton.jit
def _load(base, rows, columns, there, row_stride, half: tl.constexpr, padded: tl.constexpr):  # type: ignore[no-untyped-def]
    at = base + rows[:, None] * row_stride + columns[None, :]
    if half == padded:
        return tl.load(at)
    return tl.load(at, mask=there[None, :], other=0.0)


@triton.jit
def _store_rotated_back(
    base, x, rows, inside, row_stride, cos, sin, half: tl.constexpr, padded: tl.constexpr
):  # type: ignore[no-untyped-def]
    """x: [rows, 2 × padded], a gradient with respect to what was rotated; stored as that with respect to what was not."""
    first, second = tl.split(tl.permute(tl.reshape(x, (x.shape[0], 2, padded)), (0, 2, 1)))
    column = tl.arange(0, padded)[None, :]
    mask = inside[:, None] & (column < half)
    c = tl.load(cos + rows[:, None] * half + column, mask=mask, other=0.0)
    s = tl.load(sin + rows[:, None] * half + column, mask=mask, other=0.0)
    at = base + rows[:, None] * row_stride + column
    tl.store(at, (first * c + second * s).to(base.dtype.element_ty), mask=mask)
    tl.store(at + half, (second * c - first * s).to(base.dtype.element_ty), mask=mask)


@triton.jit
def _forward_block(  # type: ignore[no-untyped-def]
    q, k, v, start, end, columns, there, row_stride, scale, total, top, sums,
    half: tl.constexpr, padded: tl.constexpr, other: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    """One block of keys: the running output, largest score and sum of the softmax."""
    rows = start + tl.arange(0, other)
    if masked:
        beyond = rows >= end
        rows = tl.minimum(rows, end - 1)
    keys = _load(k, rows, columns, there, row_stride, half, padded)
    scores = tl.dot(q, tl.trans(keys))
    if masked:
        scores = tl.where(beyond[None, :], -float("inf"), scores)
    higher = tl.maximum(top, tl.max(scores, 1) * scale)
    p = tl.math.exp2(scores * scale - higher[:, None])
    shrink = tl.math.exp2(top - higher)
    sums = sums * shrink + tl.sum(p, 1)
    values = _load(v, rows, columns, there, row_stride, half, padded)
    total = tl.dot(p.to(values.dtype), values, total * shrink[:, None])
    return total, higher, sums


@triton.jit
def _attention_forward(  # type: ignore[no-untyped-def]
    qkv, out, logsum, tiles, tokens, scale, heads: tl.constexpr, half: tl.constexpr, padded: tl.constexpr, own: tl.constexpr, other: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1)
    begin, end, first = (
        tl.load(tiles + 3 * tile),
        tl.load(tiles + 3 * tile + 1),
        tl.load(tiles + 3 * tile + 2),
    )
    if first >= end:
        return
    row_stride = 6 * heads * half
    q = qkv + head * (6 * half)
    k, v = q + 2 * half, q + 4 * half
    columns, there = _columns(half, padded)
    rows = first + tl.arange(0, own)
    inside = rows < end
    queries = _load(q, tl.minimum(rows, end - 1), columns, there, row_stride, half, padded)
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
            columns,
            there,
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
            columns,
            there,
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
    at = out + rows[:, None] * (2 * heads * half) + head * (2 * half) + columns[None, :]
    tl.store(
        at, (total / sums[:, None]).to(out.dtype.element_ty), mask=inside[:, None] & there[None, :]
    )


@triton.jit
def _queries_block(  # type: ignore[no-untyped-def]
    q, grad, k, v, start, end, columns, there, row_stride, scale, logsum, delta, total,
    half: tl.constexpr, padded: tl.constexpr, other: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    rows = start + tl.arange(0, other)
    if masked:
        beyond = rows >= end
        rows = tl.minimum(rows, end - 1)
    keys = _load(k, rows, columns, there, row_stride, half, padded)
    p = tl.math.exp2(tl.dot(q, tl.trans(keys)) * scale - logsum[:, None])
    if masked:
        p = tl.where(beyond[None, :], 0.0, p)
    values = _load(v, rows, columns, there, row_stride, half, padded)
    ds = p * (tl.dot(grad, tl.trans(values)) - delta[:, None])
    return tl.dot(ds.to(keys.dtype), keys, total)


@triton.jit
def _attention_backward_queries(  # type: ignore[no-untyped-def]
    qkv, out, grad, dqkv, logsum, delta, cos, sin, tiles, tokens, scale, softmax_scale,
    heads: tl.constexpr, half: tl.constexpr, padded: tl.constexpr, own: tl.constexpr, other: tl.constexpr,
):  # fmt: skip
    """dQ of a block of queries, and their Σ dO·O for the other kernel."""
    tile, head = tl.program_id(0), tl.program_id(1)
    begin, end, first = (
        tl.load(tiles + 3 * tile),
        tl.load(tiles + 3 * tile + 1),
        tl.load(tiles + 3 * tile + 2),
    )
    if first >= end:
        return
    row_stride, out_stride = 6 * heads * half, 2 * heads * half
    q = qkv + head * (6 * half)
    k, v = q + 2 * half, q + 4 * half
    columns, there = _columns(half, padded)
    rows = first + tl.arange(0, own)
    inside = rows < end
    at = tl.minimum(rows, end - 1)
    queries = _load(q, at, columns, there, row_stride, half, padded)
    grads = _load(grad + head * (2 * half), at, columns, there, out_stride, half, padded)
    outs = _load(out + head * (2 * half), at, columns, there, out_stride, half, padded)
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
            columns,
            there,
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
            columns,
            there,
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
def _keys_block(  # type: ignore[no-untyped-def]
    q, grad, keys, values, start, end, columns, there, row_stride, out_stride, scale, logsum, delta, dk, dv,
    half: tl.constexpr, padded: tl.constexpr, other: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    rows = start + tl.arange(0, other)
    if masked:
        beyond = rows >= end
        rows = tl.minimum(rows, end - 1)
    queries = _load(q, rows, columns, there, row_stride, half, padded)
    p = tl.math.exp2(tl.dot(keys, tl.trans(queries)) * scale - tl.load(logsum + rows)[None, :])
    if masked:
        p = tl.where(beyond[None, :], 0.0, p)
    grads = _load(grad, rows, columns, there, out_stride, half, padded)
    dv = tl.dot(p.to(grads.dtype), grads, dv)
    ds = p * (tl.dot(values, tl.trans(grads)) - tl.load(delta + rows)[None, :])
    dk = tl.dot(ds.to(queries.dtype), queries, dk)
    return dk, dv


@triton.jit
def _attention_backward_keys(  # type: ignore[no-untyped-def]
    qkv, grad, dqkv, logsum, delta, cos, sin, tiles, tokens, scale, softmax_scale,
    heads: tl.constexpr, half: tl.constexpr, padded: tl.constexpr, own: tl.constexpr, other: tl.constexpr,
):  # fmt: skip
    """dK and dV of a block of keys."""
    tile, head = tl.program_id(0), tl.program_id(1)
    begin, end, first = (
        tl.load(tiles + 3 * tile),
        tl.load(tiles + 3 * tile + 1),
        tl.load(tiles + 3 * tile + 2),
    )
    if first >= end:
        return
    row_stride, out_stride = 6 * heads * half, 2 * heads * half
    q = qkv + head * (6 * half)
    columns, there = _columns(half, padded)
    rows = first + tl.arange(0, own)
    inside = rows < end
    at = tl.minimum(rows, end - 1)
    keys = _load(q + 2 * half, at, columns, there, row_stride, half, padded)
    values = _load(q + 4 * half, at, columns, there, row_stride, half, padded)
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
            columns,
            there,
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
            columns,
            there,
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
    there_dv = inside[:, None] & there[None, :]
    tl.store(
        dqkv + head * (6 * half) + 4 * half + rows[:, None] * row_stride + columns[None, :],
        dv.to(dqkv.dtype.element_ty),
        mask=there_dv,
    )
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


def tiles(cu_seqlens: Tensor, tokens: int) -> Tensor:
    """int32[tokens / BLOCK + slots, 3]: begin and end of a sequence and the first row of a block in it; what is left over is empty (zeros)."""
    begins, ends = cu_seqlens[:-1], cu_seqlens[1:]
    blocks = (ends - begins + BLOCK - 1) // BLOCK
    through = blocks.cumsum(0, dtype=torch.int32)
    number = torch.arange(
        tokens // BLOCK + begins.numel(), dtype=torch.int32, device=cu_seqlens.device
    )
    at = torch.searchsorted(through, number, right=True).clamp_max(begins.numel() - 1)
    first = begins[at] + (number - through[at] + blocks[at]) * BLOCK
    return torch.where(
        (number < through[-1])[:, None], torch.stack([begins[at], ends[at], first], 1), 0
    )


class Attention(torch.autograd.Function):
    """Rotary embedding and attention of fused QKV [T, H, 3, R], which is rotated where it is; output [T, H, R].

    Whoever made QKV must not need it for a backward pass; linear maps do not. cos, sin: float32[T, R / 2]. of_tiles: `tiles` of sequences that
    cover the row: what belongs to none would have no gradient written.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, of_tiles: Tensor) -> Tensor:
        qkv = qkv.detach()
        rotate_(qkv, cos, sin)
        tokens, heads, _, size = qkv.shape
        out = qkv.new_empty(tokens, heads, size)
        logsum = qkv.new_empty(heads, tokens, dtype=torch.float32)
        _attention_forward[(of_tiles.shape[0], heads)](
            qkv,
            out,
            logsum,
            of_tiles,
            tokens,
            LOG2_E * size**-0.5,
            **_constants(qkv),
            own=BLOCK,
            other=FORWARD_BLOCK,
            num_warps=WARPS,
            num_stages=STAGES,
        )
        ctx.save_for_backward(qkv, out, logsum, cos, sin, of_tiles)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        qkv, out, logsum, cos, sin, of_tiles = ctx.saved_tensors
        tokens, heads, _, size = qkv.shape
        grad, dqkv, delta = grad.contiguous(), torch.empty_like(qkv), torch.empty_like(logsum)
        scales = (LOG2_E * size**-0.5, size**-0.5)
        grid, shape = (
            (of_tiles.shape[0], heads),
            {
                **_constants(qkv),
                "own": BLOCK,
                "other": BACKWARD_BLOCK,
                "num_warps": WARPS,
                "num_stages": STAGES,
            },
        )
        _attention_backward_queries[grid](
            qkv, out, grad, dqkv, logsum, delta, cos, sin, of_tiles, tokens, *scales, **shape
        )
        _attention_backward_keys[grid](
            qkv, grad, dqkv, logsum, delta, cos, sin, of_tiles, tokens, *scales, **shape
        )
        return dqkv, None, None, None


def _constants(qkv: Tensor) -> dict[str, int]:
    half = qkv.shape[3] // 2
    return {"heads": qkv.shape[1], "half": half, "padded": max(triton.next_power_of_2(half), 8)}
