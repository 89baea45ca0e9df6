"""Transformer layer for inference in FP8, made out of a layer of backend te.

Each token of an input and each output feature of a weight has a scale of its own. A scale never
depends on other tokens, so the result of a sequence does not depend on the sequences beside it.
Attention, norms and the residual stream are in bf16.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.kernels.fp8_rows import add_norm_rows, bias_gelu_rows, quantize_rows
from trainer.model.esm2 import NORM_EPSILON, Esm2
from trainer.model.layer_te import Context, Layer


class Fp8Linear(nn.Module):
    """Linear map of an input in FP8, with one scale for each row."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Args:
        weight: bf16[out, in].
        bias: bf16[out], added to the output; None for no addition.
        """
        super().__init__()
        self.weight, self.scales = quantize_rows(weight)
        self.bias = bias

    def forward(self, x: Tensor, scales: Tensor) -> Tensor:
        """Return bf16[T, out] for x, float8_e4m3fn[T, in], and scales, float32[T, 1]."""
        return torch._scaled_mm(
            x,
            self.weight.t(),
            scale_a=scales,
            scale_b=self.scales.t(),
            bias=self.bias,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )


class Fp8Layer(nn.Module):
    """Layer with the interface of `layer_te.Layer`, without a backward pass."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.heads, self.attention = layer.heads, layer.attention
        qkv, proj, mlp = layer.layernorm_qkv, layer.proj, layer.layernorm_mlp
        self.norm_qkv: tuple[Tensor, Tensor] = (qkv.layer_norm_weight, qkv.layer_norm_bias)
        self.norm_mlp: tuple[Tensor, Tensor] = (mlp.fc1.layer_norm_weight, mlp.fc1.layer_norm_bias)
        self.qkv = Fp8Linear(qkv.weight, qkv.bias)
        self.proj, self.proj_bias = Fp8Linear(proj.weight, None), proj.bias
        self.fc1, self.fc1_bias = Fp8Linear(mlp.fc1.weight, None), mlp.fc1.bias
        self.fc2 = Fp8Linear(mlp.fc2.weight, mlp.fc2.bias)
        self.tanh = mlp.tanh

    def forward(self, x_tD: Tensor, update_tD: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Return the new residual stream, and an update that the next layer adds to the stream."""
        x_tD, *normal = add_norm_rows(x_tD, update_tD, None, *self.norm_qkv, NORM_EPSILON)
        qkv = self.qkv(*normal)
        attended_tD = context.attend(self.attention, qkv.view(qkv.shape[0], self.heads, 3, -1))
        update_tD = self.proj(*quantize_rows(attended_tD))
        x_tD, *normal = add_norm_rows(x_tD, update_tD, self.proj_bias, *self.norm_mlp, NORM_EPSILON)
        inner_tF = self.fc1(*normal)
        return x_tD, self.fc2(*bias_gelu_rows(inner_tF, self.fc1_bias, tanh=self.tanh))


@torch.no_grad()
def to_fp8(model: Esm2) -> Esm2:
    """Replace the layers of a model of backend te, in place, and return the model. The model cannot
    train afterwards.
    """
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)
        model.layers[number] = Fp8Layer(layer)
    return model
