"""Convert tensors between Esm2 and Hugging Face's EsmForMaskedLM. All values stay the same,
including inv_freq.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from schemas.models import ModelOptions
from trainer.model.esm2 import PADDED_VOCABULARY, VOCABULARY

_INV_FREQ: Final = "esm.rotary_embeddings.inv_freq"
_WHOLE: Final[Mapping[str, str]] = {
    "norm.weight": "esm.encoder.emb_layer_norm_after.weight",
    "norm.bias": "esm.encoder.emb_layer_norm_after.bias",
    "head.dense.weight": "lm_head.dense.weight",
    "head.dense.bias": "lm_head.dense.bias",
    "head.norm.weight": "lm_head.layer_norm.weight",
    "head.norm.bias": "lm_head.layer_norm.bias",
    "head.bias": "lm_head.bias",
    "contact_head.weight": "esm.contact_head.regression.weight",
    "contact_head.bias": "esm.contact_head.regression.bias",
}
_OF_LAYER: Final[Mapping[str, str]] = {
    "layernorm_qkv.layer_norm_weight": "attention.LayerNorm.weight",
    "layernorm_qkv.layer_norm_bias": "attention.LayerNorm.bias",
    "proj.weight": "attention.output.dense.weight",
    "proj.bias": "attention.output.dense.bias",
    "layernorm_mlp.layer_norm_weight": "LayerNorm.weight",
    "layernorm_mlp.layer_norm_bias": "LayerNorm.bias",
    "layernorm_mlp.fc1_weight": "intermediate.dense.weight",
    "layernorm_mlp.fc1_bias": "intermediate.dense.bias",
    "layernorm_mlp.fc2_weight": "output.dense.weight",
    "layernorm_mlp.fc2_bias": "output.dense.bias",
}
_QKV: Final = ("query", "key", "value")


def from_esm(tensors: Mapping[str, Tensor], options: ModelOptions) -> dict[str, Tensor]:
    """Convert the tensors of an EsmForMaskedLM to tensors of Esm2, float32, by name.

    Raises:
        KeyError: a tensor is missing, or layers have different inv_freq.
    """
    ours = {
        "embedding": F.pad(
            tensors["esm.embeddings.word_embeddings.weight"].float(),
            (0, 0, 0, PADDED_VOCABULARY - VOCABULARY),
        )
    }
    for name, theirs in _WHOLE.items():
        if theirs in tensors or not name.startswith(
            "contact_head"
        ):  # a checkpoint may lack the contact head
            ours[name] = tensors[theirs].float()
    for i in range(options.layers):
        layer = f"esm.encoder.layer.{i}."
        for name, theirs in _OF_LAYER.items():
            ours[f"layers.{i}.{name}"] = tensors[layer + theirs].float()
        for kind in ("weight", "bias"):
            parts = torch.stack(
                [tensors[f"{layer}attention.self.{part}.{kind}"].float() for part in _QKV]
            )
            # [3, H × R, …] → [H, 3, R, …], so that query, key and value of a head are adjacent
            by_head = parts.unflatten(1, (options.heads, options.head_size)).transpose(0, 1)
            ours[f"layers.{i}.layernorm_qkv.{kind}"] = by_head.flatten(0, 2).contiguous()
    # Depending on its version, transformers saves inv_freq under one name, under a name for each
    # layer, or under one name with a literal "*" as the number of the layer.
    rotary = [
        tensors[name].float()
        for name in sorted(tensors)
        if name.endswith("rotary_embeddings.inv_freq")
    ]
    if any(not torch.equal(rotary[0], other) for other in rotary):
        raise KeyError("inv_freq with the same values in all layers")
    if rotary:
        ours["inv_freq"] = rotary[0]
    return ours


def to_esm(tensors: Mapping[str, Tensor], options: ModelOptions) -> dict[str, Tensor]:
    """Convert tensors of Esm2 to tensors of an EsmForMaskedLM, float32, by name.

    Args:
        tensors: tensors of Esm2 by name, not sharded.
    """
    theirs = {
        "esm.embeddings.word_embeddings.weight": tensors["embedding"][:VOCABULARY].clone(),
        _INV_FREQ: tensors["inv_freq"],
    }
    theirs |= {esm_name: tensors[name] for name, esm_name in _WHOLE.items()}
    for i in range(options.layers):
        layer = f"esm.encoder.layer.{i}."
        for name, esm_name in _OF_LAYER.items():
            theirs[layer + esm_name] = tensors[f"layers.{i}.{name}"]
        for kind in ("weight", "bias"):
            fused = tensors[f"layers.{i}.layernorm_qkv.{kind}"].unflatten(
                0, (options.heads, 3, options.head_size)
            )
            for part, value in zip(_QKV, fused.transpose(0, 1), strict=True):
                theirs[f"{layer}attention.self.{part}.{kind}"] = value.flatten(0, 1)
    return {name: tensor.detach().float().contiguous() for name, tensor in theirs.items()}
