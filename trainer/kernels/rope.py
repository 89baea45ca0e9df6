"""Triton kernel that applies the rotary embedding to fused QKV in place.

Transformer Engine's kernel for fused QKV computes the sine and cosine of each element again for
each head, and copies V. For a tensor of 16,384 × 3 × 1,280 in bf16 on an H200, that kernel takes
195 µs per layer in the forward pass, and 195 µs in the backward pass. Reading and writing Q and K
once takes 40 µs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _rotate(
    qkv,
    cos,
    sin,
    heads: tl.constexpr,
    half: tl.constexpr,
    half_padded: tl.constexpr,
    block: tl.constexpr,
    inverse: tl.constexpr,
):
    """Rotate Q and K of one token, for block / 2 heads.

    qkv: [T, heads, 3, 2 × half].
    cos, sin: float32[T, half].
    """
    token = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * block + tl.arange(0, block)[:, None]  # Q of head 0, K of head 0, …
    column = tl.arange(0, half_padded)[None, :]
    inside = (row < 2 * heads) & (column < half)
    c = tl.load(cos + token * half + column, mask=column < half, other=0.0)
    s = tl.load(sin + token * half + column, mask=column < half, other=0.0)
    if inverse:
        s = -s
    first = (
        qkv + token * (6 * heads * half) + (row // 2) * (6 * half) + (row % 2) * (2 * half) + column
    )
    a = tl.load(first, mask=inside).to(tl.float32)
    b = tl.load(first + half, mask=inside).to(tl.float32)
    tl.store(first, (a * c - b * s).to(qkv.dtype.element_ty), mask=inside)
    tl.store(first + half, (b * c + a * s).to(qkv.dtype.element_ty), mask=inside)


def rotate_(qkv: Tensor, cos: Tensor, sin: Tensor, *, inverse: bool = False) -> None:
    """Rotate Q and K of fused QKV [T, H, 3, R] in place.

    Args:
        cos, sin: float32[T, R / 2], cosine and sine of the angles.
        inverse: True to rotate back, by the negative angles.
    """
    tokens, heads, _, size = qkv.shape
    block = min(triton.next_power_of_2(2 * heads), 64)
    _rotate[(tokens, triton.cdiv(2 * heads, block))](
        qkv, cos, sin, heads, size // 2, triton.next_power_of_2(size // 2), block, inverse
    )


class RotateQKV(torch.autograd.Function):
    """Rotation of fused QKV [T, H, 3, R] in place. The output is Q, K and V, as views of this
    tensor.

    The operation that computed QKV must not use QKV in its backward pass. Linear maps satisfy this
    rule.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cos, sin)
        qkv = qkv.detach()
        rotate_(qkv, cos, sin)
        return qkv.unbind(2)

    @staticmethod
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, None, None]:
        # If the three gradients are views of one fused tensor, rotate that tensor without a copy.
        tokens, heads, size = dq.shape
        strides, step = (3 * heads * size, 3 * size, 1), size * dq.element_size()
        together = (
            dq.stride() == dk.stride() == dv.stride() == strides
            and dk.data_ptr() - dq.data_ptr() == dv.data_ptr() - dk.data_ptr() == step
        )
        dqkv = (
            dq.as_strided((tokens, heads, 3, size), (strides[0], strides[1], size, 1))
            if together
            else torch.stack((dq, dk, dv), 2)
        )
        rotate_(dqkv, *ctx.saved_tensors, inverse=True)
        return dqkv, None, None
