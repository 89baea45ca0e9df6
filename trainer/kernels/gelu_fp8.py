"""Triton kernels that compute GELU and store the result in FP8, for training with delayed scaling.

With delayed scaling, the scale of a tensor is known before the tensor is computed. One pass can
therefore compute GELU, convert it, and store it twice: in rows of tokens, and transposed. The FP8
products of Hopper need both. The backward pass does the same with the gradient. Transformer
Engine's separate conversion reads each tensor once more, and our GELU would have to write it in
bf16 before.

The results have the same bits as GELU in bf16 (gelu.py) that Transformer Engine then converts.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from trainer.kernels.fp8_tensors import fp8_tensor, torch_dtype
from trainer.kernels.gelu import _gate, _load_sum, _slope

_ROWS: Final = 64
_COLUMNS: Final = 64
_WARPS: Final = 4


@triton.jit
def _store(
    value, row, column, inside, scale, inverse, largest, out, transposed, tokens, size: tl.constexpr
):
    """Store a block of numbers in FP8, twice. Update the largest absolute number of the tensor."""
    factor = tl.load(scale)
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(inverse, tl.math.div_rn(1.0, factor))
    value = tl.where(inside, value, 0.0)
    tl.atomic_max(largest, tl.max(tl.abs(value)), sem="relaxed")
    eighth = (value * factor).to(out.dtype.element_ty)
    tl.store(out + row.to(tl.int64)[:, None] * size + column[None, :], eighth, mask=inside)
    at = column.to(tl.int64)[:, None] * tokens + row[None, :]
    tl.store(transposed + at, tl.trans(eighth), mask=tl.trans(inside))


@triton.jit
def _forward(
    x,
    bias,
    scale,
    inverse,
    largest,
    out,
    transposed,
    tokens,
    size: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    tanh: tl.constexpr,
):
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    value, _, inside = _load_sum(x, bias, row, column, tokens, size)
    value = (value * _gate(value, tanh)[0]).to(x.dtype.element_ty).to(tl.float32)
    _store(value, row, column, inside, scale, inverse, largest, out, transposed, tokens, size)


@triton.jit
def _backward(
    x,
    bias,
    grad_out,
    scale,
    inverse,
    largest,
    grad,
    transposed,
    sums,
    tokens,
    size: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    tanh: tl.constexpr,
):
    """Compute the gradient of x, and partial sums of the gradient of the bias.

    sums: float32[tokens / rows, size], partial sums.
    """
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    value, at, inside = _load_sum(x, bias, row, column, tokens, size)
    dx = tl.load(grad_out + at, mask=inside, other=0.0).to(tl.float32) * _slope(value, tanh)
    tl.store(sums + tl.program_id(0) * size + column, tl.sum(dx, 0), mask=column < size)
    dx = dx.to(x.dtype.element_ty).to(tl.float32)
    _store(dx, row, column, inside, scale, inverse, largest, grad, transposed, tokens, size)


class BiasGeluFp8(torch.autograd.Function):
    """GELU(x + bias) for x [T, F] as a Float8Tensor, exact or with the tanh approximation.

    The gradient of x is a Float8Tensor too. `of_out` and `of_grad` are quantizers of Transformer
    Engine, with the scales of delayed scaling.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, tanh: bool, of_out: Any, of_grad: Any) -> Tensor:
        tokens, size = x.shape
        outputs = _outputs(x, of_out)
        grid = (triton.cdiv(tokens, _ROWS), triton.cdiv(size, _COLUMNS))
        inverse, out, transposed = outputs
        _forward[grid](
            x,
            bias,
            of_out.scale,
            inverse,
            of_out.amax,
            out,
            transposed,
            tokens,
            size,
            _ROWS,
            _COLUMNS,
            tanh,
            num_warps=_WARPS,
        )
        ctx.save_for_backward(x, bias)
        ctx.tanh, ctx.of_grad = tanh, of_grad
        return fp8_tensor(of_out, x.dtype, *outputs)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        x, bias = ctx.saved_tensors
        tokens, size = x.shape
        outputs = _outputs(x, ctx.of_grad)
        inverse, grad, transposed = outputs
        chunks = triton.cdiv(tokens, _ROWS)
        sums = torch.empty(chunks, size, dtype=torch.float32, device=x.device)
        _backward[(chunks, triton.cdiv(size, _COLUMNS))](
            x,
            bias,
            grad_out.contiguous(),
            ctx.of_grad.scale,
            inverse,
            ctx.of_grad.amax,
            grad,
            transposed,
            sums,
            tokens,
            size,
            _ROWS,
            _COLUMNS,
            ctx.tanh,
            num_warps=_WARPS,
        )
        dx = fp8_tensor(ctx.of_grad, x.dtype, *outputs)
        return dx, sums.sum(0).to(bias.dtype), None, None, None


def _outputs(x: Tensor, quantizer: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return memory for the inverse of the scale, the numbers, and the transposed numbers."""
    dtype, (tokens, size) = torch_dtype(quantizer), x.shape
    return (
        torch.empty(1, dtype=torch.float32, device=x.device),
        torch.empty(tokens, size, dtype=dtype, device=x.device),
        torch.empty(size, tokens, dtype=dtype, device=x.device),
    )
