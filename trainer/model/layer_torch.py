"""Transformer layer in plain torch, for any device. The layer is the reference for layer_te.py.

| row | attention |
|---|---|
| padded (BSHD) | one call of scaled_dot_product_attention with a mask |
| packed (THD), half precision on a GPU | torch.nn.attention.varlen |
| packed (THD), otherwise | one call of scaled_dot_product_attention per sequence |

With one call per sequence, the rounding of a sequence does not depend on other sequences.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from schemas.models import ModelOptions, Recompute
from trainer.distributed.context_parallel import Slices
from trainer.model.esm2 import NORM_EPSILON, SequenceLayout


class Context:
    """Angles of the rotary embedding and layout of the sequences of a row, for all layers."""

    def __init__(self, sequences: SequenceLayout, angles_TR: Tensor, slices: Slices) -> None:
        self.slices = slices
        self.cos, self.sin = angles_TR.cos()[:, None], angles_TR.sin()[:, None]
        self.sequences = sequences
        self.mask: Tensor | None = None
        self.lengths: list[int] = []
        if sequences.lengths is not None:
            columns = torch.arange(sequences.max_seqlen, device=angles_TR.device)
            self.mask = (columns < sequences.lengths[:, None])[:, None, None]
        elif angles_TR.device.type == "cpu":
            self.lengths = sequences.cu_seqlens.diff().tolist()

    def attend(self, qkv_tH3R: Tensor) -> Tensor:
        """Return the output [t, H, R] of attention within each sequence, with rotary embedding and
        softmax scale 1/√R.

        Args:
            qkv_tH3R: fused QKV, not yet rotated.
        """
        heads = qkv_tH3R.shape[1]
        q_THR, k_THR, v_THR = self.slices.to_heads(qkv_tH3R).unbind(2)
        half = q_THR.dtype in (torch.bfloat16, torch.float16)
        if self.mask is None and q_THR.is_cuda and half:
            out_THR = self._varlen(self.rotate(q_THR), self.rotate(k_THR), v_THR)
        else:
            # Q is scaled here, in fp32. The kernel would scale each score, with one more rounding.
            q_THR = self.rotate(q_THR, scale=q_THR.shape[-1] ** -0.5)
            out_THR = self._attend(q_THR, self.rotate(k_THR), v_THR)
        return self.slices.to_tokens(out_THR, heads)

    # Not compiled, because torch.compile would compile again for the lengths of each row.
    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch has no types here
    def _varlen(self, q_THR: Tensor, k_THR: Tensor, v_THR: Tensor) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        cu_seqlens, longest = self.sequences.cu_seqlens, self.sequences.max_seqlen
        out = varlen_attn(q_THR, k_THR, v_THR, cu_seqlens, cu_seqlens, longest, longest)
        return cast(Tensor, out)  # varlen_attn returns a pair only with the logsumexp

    # Not compiled, because torch.compile would compile again for the lengths of each row.
    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch has no types here
    def _attend(self, q_THR: Tensor, k_THR: Tensor, v_THR: Tensor) -> Tensor:
        """Return the output of scaled_dot_product_attention. q_THR is already scaled."""
        if self.mask is not None:
            q, k, v = (
                x.unflatten(0, (-1, self.sequences.max_seqlen)).transpose(1, 2)
                for x in (q_THR, k_THR, v_THR)
            )
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, scale=1.0)
            return out.transpose(1, 2).flatten(0, 1)
        if not self.lengths:
            # On a GPU, this code runs in fp32 only, and waits for the GPU once per row.
            self.lengths = self.sequences.cu_seqlens.diff().tolist()
        each = zip(*(tensor.split(self.lengths) for tensor in (q_THR, k_THR, v_THR)), strict=True)
        # Without the batch dimension of 1, torch would store all scores, which take 4 GB per head
        # for the longest proteins.
        batches = ((t.transpose(0, 1)[None] for t in qkv) for qkv in each if qkv[0].numel())
        parts = [F.scaled_dot_product_attention(q, k, v, scale=1.0) for q, k, v in batches]
        return torch.cat([part[0].transpose(0, 1) for part in parts])

    def rotate(self, x_THR: Tensor, *, scale: float = 1.0) -> Tensor:
        """Return x_THR rotated by the rotary embedding and multiplied by `scale`, computed in fp32.
        Columns i and i + R / 2 of a head are rotated as a pair.
        """
        with torch.autocast(x_THR.device.type, enabled=False):
            first, second = x_THR.float().chunk(2, dim=-1)
            turned = torch.cat(
                (first * self.cos - second * self.sin, second * self.cos + first * self.sin), dim=-1
            )
            if scale != 1.0:
                turned = turned * scale
        return turned.to(x_THR.dtype)


class NormLinear(nn.Module):
    """LayerNorm, then a linear map. Parameters have the names of Transformer Engine's
    LayerNormLinear.
    """

    def __init__(self, features: int, out_features: int) -> None:
        super().__init__()
        self.layer_norm_weight = nn.Parameter(torch.empty(features))
        self.layer_norm_bias = nn.Parameter(torch.empty(features))
        self.weight = nn.Parameter(torch.empty(out_features, features))
        self.bias = nn.Parameter(torch.empty(out_features))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(
            F.layer_norm(
                x, self.weight.shape[1:], self.layer_norm_weight, self.layer_norm_bias, NORM_EPSILON
            ),
            self.weight,
            self.bias,
        )


class FeedForward(nn.Module):
    def __init__(self, options: ModelOptions) -> None:
        super().__init__()
        self.fc1 = NormLinear(options.hidden_size, options.ffn_size)
        self.fc2 = nn.Linear(options.ffn_size, options.hidden_size)
        self.approximate = "none" if options.gelu == "erf" else "tanh"

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x), approximate=self.approximate))


class Layer(nn.Module):
    def __init__(self, options: ModelOptions, recompute: Recompute, slices: Slices) -> None:
        super().__init__()
        self.heads, self.recompute = options.heads, recompute
        self.layernorm_qkv = NormLinear(options.hidden_size, 3 * options.hidden_size)
        self.proj = nn.Linear(options.hidden_size, options.hidden_size)
        self.layernorm_mlp = FeedForward(options)

    def forward(self, x_tD: Tensor, update_tD: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Return the new residual stream, and an update that the next layer adds to the stream."""
        if self.recompute == "full" and torch.is_grad_enabled():
            return checkpoint(self._forward, x_tD, update_tD, context, use_reentrant=False)
        return self._forward(x_tD, update_tD, context)

    def _forward(self, x_tD: Tensor, update_tD: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        x_tD = x_tD + update_tD
        qkv_tH3R = self.layernorm_qkv(x_tD).unflatten(1, (self.heads, 3, -1))
        x_tD = x_tD + self.proj(context.attend(qkv_tH3R).flatten(1))
        if self.recompute == "selective" and torch.is_grad_enabled():
            return x_tD, checkpoint(self.layernorm_mlp, x_tD, use_reentrant=False)
        return x_tD, self.layernorm_mlp(x_tD)
