"""Triton kernels that compute the inputs of FP8 matrix products, for inference.

Each row [D] of an input is stored in FP8 (E4M3) with a scale of its own, so that its largest number
becomes 448. A kernel computes a row, finds its scale, and writes the row in FP8, in one pass over
memory. With one scale for a whole tensor, as in training, two more passes are necessary: one to
find the largest number, and one to convert.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from trainer.kernels.gelu import _gate

LARGEST: Final = 448.0
"""Largest number in E4M3."""
_LEAST: Final = tl.constexpr(1e-12)
_MOST: Final = tl.constexpr(LARGEST)


@triton.jit
def _store_scaled(value, out, scales, row, at, mask):
    """Store a row in FP8, and its scale."""
    largest = tl.maximum(tl.max(tl.abs(value), 0), _LEAST)
    tl.store(scales + row, largest / _MOST)
    tl.store(out + at, (value * (_MOST / largest)).to(tl.float8e4nv), mask=mask)


@triton.jit
def _quantize(x, out, scales, size: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, block)
    mask = column < size
    at = row.to(tl.int64) * size + column
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    _store_scaled(value, out, scales, row, at, mask)


@triton.jit
def _add_norm(
    x,
    update,
    bias,
    weight,
    shift,
    total,
    out,
    scales,
    epsilon,
    size: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0)
    column = tl.arange(0, block)
    mask = column < size
    at = row.to(tl.int64) * size + column
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    value += tl.load(update + at, mask=mask, other=0.0).to(tl.float32)
    if bias is not None:
        value += tl.load(bias + column, mask=mask, other=0.0).to(tl.float32)
    rounded = value.to(total.dtype.element_ty)
    tl.store(total + at, rounded, mask=mask)
    value = rounded.to(tl.float32)
    mean = tl.sum(value, 0) / size
    centred = tl.where(mask, value - mean, 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, 0) / size + epsilon)
    scaled = centred * inverse * tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    scaled += tl.load(shift + column, mask=mask, other=0.0).to(tl.float32)
    _store_scaled(scaled, out, scales, row, at, mask)


@triton.jit
def _bias_gelu(x, bias, out, scales, size: tl.constexpr, block: tl.constexpr, tanh: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, block)
    mask = column < size
    at = row.to(tl.int64) * size + column
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    value += tl.load(bias + column, mask=mask, other=0.0).to(tl.float32)
    _store_scaled(value * _gate(value, tanh)[0], out, scales, row, at, mask)


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x [T, D] in FP8, and float32[T, 1], the scale of each row. The product of both is x,
    rounded.
    """
    out, scales = _results(x)
    block = triton.next_power_of_2(x.shape[1])
    _quantize[(x.shape[0],)](x, out, scales, x.shape[1], block, num_warps=_warps(block))
    return out, scales


def add_norm_rows(
    x: Tensor, update: Tensor, bias: Tensor | None, weight: Tensor, shift: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sum x + update + bias, [T, D], and its LayerNorm as `quantize_rows` returns it."""
    total = torch.empty_like(x)
    out, scales = _results(x)
    size = x.shape[1]
    block = triton.next_power_of_2(size)
    arguments = (x, update, bias, weight, shift, total, out, scales, epsilon, size, block)
    _add_norm[(x.shape[0],)](*arguments, num_warps=_warps(block))
    return total, out, scales


def bias_gelu_rows(x: Tensor, bias: Tensor, *, tanh: bool) -> tuple[Tensor, Tensor]:
    """Return GELU(x + bias) for x [T, F] as `quantize_rows` returns it."""
    out, scales = _results(x)
    size = x.shape[1]
    block = triton.next_power_of_2(size)
    _bias_gelu[(x.shape[0],)](x, bias, out, scales, size, block, tanh, num_warps=_warps(block))
    return out, scales


def _results(x: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    return out, torch.empty(x.shape[0], 1, dtype=torch.float32, device=x.device)


def _warps(block: int) -> int:
    return max(1, min(16, block // 2048))
