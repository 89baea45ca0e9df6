"""Triton kernels that add a bias and compute GELU. The forward pass and the backward pass each read
and write memory once. The backward pass also sums the gradient of the bias.

Transformer Engine fuses only the tanh approximation, but ESM-2 is trained with the exact GELU
(Hendrycks & Gimpel, 2016). Times for a tensor of 16,384 × 5,120 in bf16 on an H200, in ms:

| | forward | backward |
|---|---:|---:|
| torch's kernels for exact GELU | 0.11 | 0.15, plus 0.08 for the bias gradient (by cuBLAS) |
| memory traffic alone | 0.07 | 0.11 |

Our kernels approximate the cumulative normal distribution Φ, with an error of at most 7.5e-8.
Source: formula 26.2.17 of Abramowitz & Stegun, 1964 (Hastings). A kernel with CUDA's erf takes a
third longer than the memory traffic alone.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS: Final = 8
_BACKWARD_ROWS: Final = 4
_BACKWARD_WARPS: Final = 2
_COLUMNS: Final = 128
_CHUNK: Final = 128
"""Number of tokens over which a program of the backward pass sums the gradient of the bias."""


@triton.jit
def _reciprocal(x):
    """Return 1 / x for x of normal size, with an error of one unit in the last place. The division
    of Triton takes eight more instructions, which make the kernels slower than memory.
    """
    return tl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _gate(x, tanh: tl.constexpr):
    """Return Φ(x) = GELU(x) / x, and exp(-x² / 2) (0 for tanh)."""
    if tanh:  # (1 + tanh(u)) / 2 = sigmoid(2u)
        return tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)), x * 0.0
    bell = tl.math.exp2(x * x * -0.7213475204444817)  # log2(e) / 2
    t = _reciprocal(1 + 0.23164189 * tl.abs(x))
    tail = (
        t
        * (
            0.127414796
            + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)))
        )
        * bell
    )
    return tl.where(x > 0, 1 - tail, tail), bell


@triton.jit
def _slope(x, tanh: tl.constexpr):
    """Return the derivative of GELU at x."""
    gate, bell = _gate(x, tanh)
    if tanh:
        return gate + x * gate * (1 - gate) * 1.5957691216057308 * (1 + 0.134145 * x * x)
    return gate + x * 0.3989422804014327 * bell


@triton.jit
def _load_sum(x, bias, row, column, tokens, size: tl.constexpr):
    """Load a block of x + bias. Return it in fp32, with its offsets, and which of it is in x."""
    inside = (row < tokens)[:, None] & (column < size)[None, :]
    at = row.to(tl.int64)[:, None] * size + column[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(bias + column, mask=column < size, other=0.0).to(tl.float32)[None, :]
    return value, at, inside


@triton.jit
def _gelu_forward(
    x,
    bias,
    out,
    tokens,
    size: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    tanh: tl.constexpr,
):
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    value, at, inside = _load_sum(x, bias, row, column, tokens, size)
    tl.store(out + at, (value * _gate(value, tanh)[0]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gelu_backward(
    x,
    bias,
    grad_out,
    grad,
    sums,
    tokens,
    size: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    chunk: tl.constexpr,
    tanh: tl.constexpr,
):
    """Compute the gradient of x, and partial sums of the gradient of the bias.

    sums: float32[tokens / chunk, size], partial sums.
    """
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    shift = tl.load(bias + column, mask=column < size, other=0.0).to(tl.float32)[None, :]
    total = tl.zeros((rows, columns), tl.float32)
    for first in range(0, chunk, rows):
        row = tl.program_id(0) * chunk + first + tl.arange(0, rows)
        inside = (row < tokens)[:, None] & (column < size)[None, :]
        at = row.to(tl.int64)[:, None] * size + column[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + shift
        dx = tl.load(grad_out + at, mask=inside, other=0.0).to(tl.float32) * _slope(value, tanh)
        total += dx
        tl.store(grad + at, dx.to(grad.dtype.element_ty), mask=inside)
    tl.store(sums + tl.program_id(0) * size + column, tl.sum(total, 0), mask=column < size)


class BiasGelu(torch.autograd.Function):
    """GELU(x + bias) for x [T, F], exact or with the tanh approximation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, tanh: bool) -> Tensor:
        tokens, size = x.shape
        out = torch.empty_like(x)
        _gelu_forward[(triton.cdiv(tokens, _ROWS), triton.cdiv(size, _COLUMNS))](
            x, bias, out, tokens, size, _ROWS, _COLUMNS, tanh
        )
        ctx.save_for_backward(x, bias)
        ctx.tanh = tanh
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, Tensor, None]:
        x, bias = ctx.saved_tensors
        tokens, size = x.shape
        chunks = triton.cdiv(tokens, _CHUNK)
        grad, sums = (
            torch.empty_like(x),
            torch.empty(chunks, size, dtype=torch.float32, device=x.device),
        )
        _gelu_backward[(chunks, triton.cdiv(size, _COLUMNS))](
            x,
            bias,
            grad_out.contiguous(),
            grad,
            sums,
            tokens,
            size,
            _BACKWARD_ROWS,
            _COLUMNS,
            _CHUNK,
            ctx.tanh,
            num_warps=_BACKWARD_WARPS,
        )
        return grad, sums.sum(0).to(bias.dtype), None
