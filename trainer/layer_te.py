"""A transformer layer of Transformer Engine's fused modules, for NVIDIA GPUs. Transformer Engine cannot be imported without one."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
import transformer_engine.pytorch as te
from torch import Tensor, nn

from trainer.attention_kernel import Attention, tiles
from trainer.config import ModelOptions, Recompute
from trainer.model import NORM_EPSILON, Sequences
from trainer.rope_kernel import RotateQKV

OUR_HEAD_SIZE = 64
OUR_LENGTH = 2048
"""Up to these our attention kernel is faster than cuDNN's (benchmarks/attention.py)."""


class Context:
    """What all layers need to know of a row: angles of the rotary embedding, and who attends to whom."""

    def __init__(self, sequences: Sequences, angles_TR: Tensor) -> None:
        self.cos, self.sin = angles_TR.cos(), angles_TR.sin()
        self.sequences = sequences
        self.tiles = tiles(sequences.cu_seqlens, angles_TR.shape[0])
        self.cu_seqlens = sequences.cu_seqlens
        if sequences.lengths is not None:  # of real tokens: what BSHD's padding mask is made of
            self.cu_seqlens = F.pad(sequences.lengths.cumsum(0, dtype=torch.int32), (1, 0))

    def attend(self, attention: te.DotProductAttention, qkv: Tensor) -> Tensor:
        """Attention output [T, D] of each sequence on itself, from fused QKV [T, H, 3, R] before the rotary embedding."""
        tokens, _, _, size = qkv.shape
        longest = self.sequences.max_seqlen
        if self.sequences.lengths is None and qkv.dtype == torch.bfloat16 and size <= OUR_HEAD_SIZE and longest <= OUR_LENGTH:
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


class ExactFeedForward(nn.Module):
    """The feed-forward part with the exact GELU, which TE's LayerNormMLP does not have."""

    def __init__(self, options: ModelOptions) -> None:
        super().__init__()
        self.fc1 = te.LayerNormLinear(options.hidden_size, options.ffn_size, eps=NORM_EPSILON, device="meta")
        self.fc2 = te.Linear(options.ffn_size, options.hidden_size, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Layer(nn.Module):
    stays_bf16 = False
    """Whether it computes in bf16 though the model runs in a lower precision."""

    def __init__(self, options: ModelOptions, recompute: Recompute) -> None:
        super().__init__()
        d, self.heads, self.recompute = options.hidden_size, options.heads, recompute
        self.layernorm_qkv = te.LayerNormLinear(d, 3 * d, eps=NORM_EPSILON, device="meta")
        self.attention = te.DotProductAttention(options.heads, options.head_size, attention_dropout=0.0)
        self.proj = te.Linear(d, d, device="meta")
        self.layernorm_mlp: nn.Module = ExactFeedForward(options)
        if options.gelu == "tanh":
            self.layernorm_mlp = te.LayerNormMLP(d, options.ffn_size, eps=NORM_EPSILON, activation="gelu", device="meta")

    def forward(self, x_TD: Tensor, context: Context) -> Tensor:
        with te.autocast(enabled=False) if self.stays_bf16 else nullcontext():
            if self.recompute == "full" and torch.is_grad_enabled():
                return te.checkpoint(self._forward, x_TD, context, use_reentrant=False)
            return self._forward(x_TD, context)

    def _forward(self, x_TD: Tensor, context: Context) -> Tensor:
        qkv = self.layernorm_qkv(x_TD).view(x_TD.shape[0], self.heads, 3, -1)
        x_TD = x_TD + self.proj(context.attend(self.attention, qkv))
        if self.recompute == "selective" and torch.is_grad_enabled():
            return x_TD + te.checkpoint(self.layernorm_mlp, x_TD, use_reentrant=False)
        return x_TD + self.layernorm_mlp(x_TD)
