"""Implementations ("rungs") of one layer for te_layer.py, in torch and in Transformer Engine."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

import torch.nn.functional as F
from torch import Tensor, nn

from trainer.config import Precision


@dataclass(frozen=True, kw_only=True)
class Options:
    hidden: int = 4_096  # hidden size
    ffn: int = 16_384  # hidden size of the feed-forward network
    heads: int = 32  # number of attention heads
    length: int = 2_048  # number of tokens in a sequence
    batch: int = 4  # number of sequences
    rounds: int = 7  # number of timed blocks of each rung
    steps: int = 10  # number of passes in a block
    json: Path | None = None  # file for the results


class Plain(nn.Module):
    """The layer in plain torch.

    linear: class of the linear layers, called with the sizes of input and output
    """

    def __init__(
        self, options: Options, linear: Callable[[int, int], nn.Module] = nn.Linear
    ) -> None:
        super().__init__()
        d, self.heads = options.hidden, options.heads
        self.norm1, self.qkv, self.proj = nn.LayerNorm(d), linear(d, 3 * d), linear(d, d)
        self.norm2, self.fc1, self.fc2 = (
            nn.LayerNorm(d),
            linear(d, options.ffn),
            linear(options.ffn, d),
        )

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (self.heads, 3, -1)).transpose(1, 2)
        x = x + self.proj(
            F.scaled_dot_product_attention(*qkv.unbind(-2)).transpose(1, 2).flatten(2)
        )
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


def te() -> ModuleType:
    """Import and return Transformer Engine. The import fails without a GPU."""
    return importlib.import_module("transformer_engine.pytorch")


class Fused(nn.Module):
    """The layer, composed of fused modules of Transformer Engine."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        d, self.heads = options.hidden, options.heads
        self.layernorm_qkv, self.proj = te().LayerNormLinear(d, 3 * d), te().Linear(d, d)
        self.attention = te().DotProductAttention(
            self.heads, d // self.heads, qkv_format="bshd", attn_mask_type="no_mask"
        )
        self.layernorm_mlp = te().LayerNormMLP(d, options.ffn, activation="gelu")

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.layernorm_qkv(x).unflatten(-1, (self.heads, 3, -1))
        x = x + self.proj(self.attention(*qkv.unbind(-2)))
        return x + self.layernorm_mlp(x)


def whole(options: Options) -> nn.Module:
    """Return Transformer Engine's own layer, with QKV weights in the order of Plain."""
    form = {
        "fuse_qkv_params": True,
        "attn_input_format": "bshd",
        "self_attn_mask_type": "no_mask",
        "activation": "gelu",
    }
    return te().TransformerLayer(
        options.hidden,
        options.ffn,
        options.heads,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        **form,
    )


LADDER: Final[dict[str, tuple[Callable[[Options], nn.Module], Precision]]] = {
    "plain torch": (Plain, "bf16"),
    "te.Linear": (lambda options: Plain(options, te().Linear), "bf16"),
    "te fused modules": (Fused, "bf16"),
    "te.TransformerLayer": (whole, "bf16"),
    "… fp8-delayed": (whole, "fp8-delayed"),
    "… fp8-current": (whole, "fp8-current"),
    "… fp8-block": (whole, "fp8-block"),
}


def plain_name(name: str) -> str:
    """Convert a parameter's name in any rung to its name in Plain."""
    name = (
        name.removeprefix("self_attention.")
        .replace("layernorm_qkv.layer_norm_", "norm1.")
        .replace("layernorm_qkv.", "qkv.")
    )
    return (
        name.replace("layernorm_mlp.layer_norm_", "norm2.")
        .replace("layernorm_mlp.fc1_", "fc1.")
        .replace("layernorm_mlp.fc2_", "fc2.")
    )
