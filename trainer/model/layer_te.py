"""Transformer layer for NVIDIA GPUs. Transformer Engine computes the linear maps, in all its
precisions. Triton kernels of this repository (trainer/kernels) compute the rest of the layer.

Transformer Engine cannot be imported without a GPU. docs/decisions/0006-speed.md lists the parts of
Transformer Engine that our kernels replace, with the time saved. trainer/model/esm2.py explains the
letters in shapes such as [t, H, 3, R] and the suffixes such as _tD. Fused QKV is one tensor that
holds queries, keys and values.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
import transformer_engine.pytorch as te
from torch import Tensor, nn

from schemas.models import ModelOptions, Recompute, longest_of_our_attention
from trainer.distributed.context_parallel import Slices
from trainer.kernels.attention import Attention, tiles
from trainer.kernels.fp8_tensors import delayed_quantizer
from trainer.kernels.gelu import BiasGelu
from trainer.kernels.gelu_fp8 import BiasGeluFp8
from trainer.kernels.norm import AddNorm
from trainer.kernels.rope import RotateQKV
from trainer.model.esm2 import NORM_EPSILON, SequenceLayout

OUR_NUMBERS = 2**31
"""Limit of our attention kernel. Fused QKV must have fewer elements than this, because the kernel's
offsets have 32 bits."""


class Context:
    """Angles of the rotary embedding and layout of the sequences of a row, for all layers."""

    def __init__(self, sequences: SequenceLayout, angles_TR: Tensor, slices: Slices) -> None:
        self.slices = slices
        self.cos, self.sin = angles_TR.cos(), angles_TR.sin()
        self.sequences = sequences
        self.tiles = tiles(sequences.cu_seqlens, angles_TR.shape[0])
        self.cu_seqlens = sequences.cu_seqlens
        # For padded rows, Transformer Engine needs cumulative lengths that exclude padding.
        if sequences.lengths is not None:
            self.cu_seqlens = F.pad(sequences.lengths.cumsum(0, dtype=torch.int32), (1, 0))

    def attend(self, attention: te.DotProductAttention, qkv: Tensor) -> Tensor:
        """Return the output [t, D] of attention within each sequence, with rotary embedding.

        Args:
            qkv: fused QKV [t, H, 3, R], not yet rotated.
        """
        heads, size = qkv.shape[1], qkv.shape[3]
        out = self._attend(attention, self.slices.to_heads(qkv))
        return self.slices.to_tokens(out.view(out.shape[0], -1, size), heads).flatten(1)

    def _attend(self, attention: te.DotProductAttention, qkv: Tensor) -> Tensor:
        """Return the attention output for all tokens and this rank's heads."""
        tokens = qkv.shape[0]
        longest = self.sequences.max_seqlen
        if is_ours(qkv, self.sequences):
            return Attention.apply(qkv, self.cos, self.sin, self.tiles).view(tokens, -1)
        q_k_v, form = RotateQKV.apply(qkv, self.cos, self.sin), "thd"
        if self.sequences.lengths is not None:
            q_k_v, form = tuple(t.unflatten(0, (-1, longest)) for t in q_k_v), "bshd"
        out = attention(
            *q_k_v,
            qkv_format=form,
            attn_mask_type="padding",
            cu_seqlens_q=self.cu_seqlens,
            cu_seqlens_kv=self.cu_seqlens,
            max_seqlen_q=longest,
            max_seqlen_kv=longest,
            pad_between_seqs=False,
        )
        return out.reshape(tokens, -1)


def is_ours(qkv: Tensor, sequences: SequenceLayout) -> bool:
    """Return True if our kernel computes the attention of this fused QKV [T, H, 3, R], and False if
    Transformer Engine's kernel does.
    """
    fits = (
        sequences.max_seqlen <= longest_of_our_attention(qkv.shape[3]) and qkv.numel() < OUR_NUMBERS
    )
    return sequences.lengths is None and qkv.dtype == torch.bfloat16 and fits


def requiring_grad(x: Tensor) -> Tensor:
    """Return x. If x is a tensor of Transformer Engine, correct its own flag `requires_grad`, which
    autograd does not set.
    """
    if x.grad_fn is not None:
        x.requires_grad_()
    return x


class NormLinear(te.Linear):  # type: ignore[misc]  # Transformer Engine has no types here
    """Addition to the residual stream, LayerNorm, and a linear map. Parameters have the names of
    Transformer Engine's LayerNormLinear.

    The class derives from te.Linear, so that state dicts have the same keys as with backend torch.

    recompute: True if the backward pass computes the map again. Transformer Engine then saves the
        scales of FP8 itself, and our kernels do not convert.
    """

    def __init__(
        self, features: int, out_features: int, *, return_bias: bool = False, recompute: bool
    ) -> None:
        super().__init__(features, out_features, device="meta", return_bias=return_bias)
        self.recompute = recompute
        self.layer_norm_weight = nn.Parameter(torch.empty(features))
        self.layer_norm_bias = nn.Parameter(torch.empty(features))

    def forward(
        self, x_tD: Tensor, update_tD: Tensor, bias_D: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Return the sum x + update + bias, and the linear map of the sum's LayerNorm. With
        `return_bias`, the second result is a pair: the output without bias, and the bias.
        """
        norm = (self.layer_norm_weight, self.layer_norm_bias, NORM_EPSILON)
        quantizer = None if self.recompute else delayed_quantizer(self)
        x_tD, normal_tD = AddNorm.apply(x_tD, update_tD, bias_D, *norm, quantizer)
        return x_tD, super().forward(requiring_grad(normal_tD))


class FeedForward(nn.Module):
    def __init__(self, options: ModelOptions, *, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.fc1 = NormLinear(
            options.hidden_size, options.ffn_size, return_bias=True, recompute=recompute
        )
        self.fc2 = te.Linear(options.ffn_size, options.hidden_size, device="meta")
        self.tanh = options.gelu == "tanh"

    def forward(self, x_tD: Tensor, update_tD: Tensor, bias_D: Tensor) -> tuple[Tensor, Tensor]:
        x_tD, (inner_tF, bias_F) = self.fc1(x_tD, update_tD, bias_D)
        quantizer = None if self.recompute else delayed_quantizer(self.fc2)
        if quantizer is None:
            return x_tD, self.fc2(BiasGelu.apply(inner_tF, bias_F, self.tanh))
        of_grad = self.fc1.quantizers["scaling_bwd"][0]
        gelu_tF: Any = requiring_grad(
            BiasGeluFp8.apply(inner_tF, bias_F, self.tanh, quantizer, of_grad)
        )
        out_tD = self.fc2(gelu_tF)
        gelu_tF.update_usage(rowwise_usage=False)  # the backward pass reads the transposed numbers
        return x_tD, out_tD


class Layer(nn.Module):
    stays_bf16 = False
    """True if the layer computes in bf16 although the model runs in low precision."""

    def __init__(self, options: ModelOptions, recompute: Recompute, slices: Slices) -> None:
        super().__init__()
        d, self.heads, self.recompute = options.hidden_size, options.heads, recompute
        self.layernorm_qkv = NormLinear(d, 3 * d, recompute=recompute == "full")
        self.attention = te.DotProductAttention(
            slices.heads(options.heads), options.head_size, attention_dropout=0.0
        )
        self.proj = te.Linear(d, d, device="meta", return_bias=True)
        self.layernorm_mlp = FeedForward(options, recompute=recompute != "none")

    def forward(self, x_tD: Tensor, update_tD: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Return the new residual stream, and an update that the next layer adds to the stream."""
        with te.autocast(enabled=False) if self.stays_bf16 else nullcontext():
            if self.recompute == "full" and torch.is_grad_enabled():
                return te.checkpoint(self._forward, x_tD, update_tD, context, use_reentrant=False)
            return self._forward(x_tD, update_tD, context)

    def _forward(self, x_tD: Tensor, update_tD: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        x_tD, qkv = self.layernorm_qkv(x_tD, update_tD)
        attended_tD = context.attend(self.attention, qkv.view(qkv.shape[0], self.heads, 3, -1))
        update_tD, bias_D = self.proj(attended_tD)
        if self.recompute == "selective" and torch.is_grad_enabled():
            return te.checkpoint(self.layernorm_mlp, x_tD, update_tD, bias_D, use_reentrant=False)
        return self.layernorm_mlp(x_tD, update_tD, bias_D)
