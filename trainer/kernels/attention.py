"""Triton kernels of attention with rotary embedding, for packed rows of many short sequences.

cuDNN's THD attention is optimized for long sequences. On a row of 16,384 tokens in sequences of 350
tokens, cuDNN spends more than half of its time outside of its two main kernels. It zeroes
gradients, converts dQ, and computes Σ dO·O at a fraction of the memory bandwidth. (O is the output,
and dX is the gradient of X.) docs/decisions/0006-speed.md has the figures.

Our backward pass has two kernels: one for dQ, and one for dK and dV. These kernels rotate dQ
and dK back, and write dQ, dK and dV directly into the gradient of fused QKV. All sums are in a
fixed order, so that the same input produces the same bits.

Source: FlashAttention-2 (Dao, 2023). The forward pass computes an online softmax by blocks of
queries, and stores the logarithm of the softmax's sum. The backward pass recomputes the softmax
from this logarithm.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import triton
from torch import Tensor

from trainer.kernels.attention_backward import _attention_backward_keys, _attention_backward_queries
from trainer.kernels.attention_forward import _attention_forward
from trainer.kernels.rope import rotate_

LOG2_E: Final = 1.4426950408889634


BLOCK: Final = 64
"""Number of tokens in the block of queries or keys that a program computes."""
FORWARD_BLOCK: Final = 64
BACKWARD_BLOCK: Final = 32
"""Number of tokens in each of the blocks that a program loops over. For head sizes of 16 to 64, the
speed with these constants is within a few percent of the fastest combination measured.
"""
WARPS: Final = 4
STAGES: Final = 3


def tiles(cu_seqlens: Tensor, tokens: int) -> Tensor:
    """Return the blocks of all sequences in a row of `tokens` tokens.

    Returns:
        int32[tokens / BLOCK + S, 3], where S + 1 is the length of cu_seqlens. Each row holds begin
        and end of a sequence, and the first token of a block in this sequence. Unused rows are
        zeros.
    """
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
    """Rotary embedding and attention.

    qkv: fused QKV [T, H, 3, R]. Q and K are rotated in place. Therefore the operation that computed
        QKV must not use QKV in its backward pass. Linear maps satisfy this rule.
    cos, sin: float32[T, R / 2], cosine and sine of the angles of the rotary embedding.
    of_tiles: result of `tiles`. The sequences must cover the whole row, because the gradient of a
        token outside of all sequences is undefined.

    The output is [T, H, R].
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
