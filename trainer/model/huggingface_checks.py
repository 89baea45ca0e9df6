"""Check a Hugging Face folder. A model that computes something differently from ESM-2 is refused
with an error that names the difference, and no tensor is silently left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from torch import Tensor

from schemas.errors import InputError
from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from trainer.model.esm2 import NORM_EPSILON, VOCABULARY

REQUIRED: Final[Mapping[str, Any]] = {
    "model_type": "esm",
    "vocab_size": VOCABULARY,
    "position_embedding_type": "rotary",
    "token_dropout": True,
    "layer_norm_eps": NORM_EPSILON,
    "mask_token_id": ESM2.id("<mask>"),
    "pad_token_id": ESM2.pad,
}
"""Keys and values that config.json has to have."""
_DEFAULTS: Final[Mapping[str, Any]] = {
    "emb_layer_norm_before": False,
    "is_decoder": False,
    "add_cross_attention": False,
    "is_folding_model": False,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "rope_scaling": None,
    "pruned_heads": None,
}
"""Values that transformers assumes for keys that config.json lacks."""
_COMPUTED: Final[Mapping[str, tuple[Any, str]]] = {
    "emb_layer_norm_before": (False, "ESM-2 has no norm there"),
    "is_decoder": (False, "this trainer's attention looks both ways"),
    "add_cross_attention": (False, "this trainer has none"),
    "is_folding_model": (False, "this trainer trains language models"),
    "hidden_dropout_prob": (
        0.0,
        "this trainer has no dropout: set it to 0.0 in config.json, if training without is what "
        "you want",
    ),
    "attention_probs_dropout_prob": (
        0.0,
        "this trainer has no dropout: set it to 0.0 in config.json, if training without is what "
        "you want",
    ),
    "rope_scaling": (None, "this trainer scales no rotary embedding"),
    "pruned_heads": (None, "all layers have all heads here"),
}
"""Key → the one value that this trainer computes, and why it refuses others. An empty object or
null counts as false.
"""
_EMBEDDING: Final = "esm.embeddings.word_embeddings.weight"
_DECODER: Final = ("lm_head.decoder.weight", "lm_head.decoder.bias")
_UNUSED: Final = re.compile(
    r"esm\.embeddings\.(position_ids|position_embeddings\.weight)|esm\.pooler\..*|.*rotary_embeddings\.inv_freq"
)
"""Tensors that transformers does not use either, in a model with rotary embeddings. inv_freq is
imported separately.
"""
_FREQUENCIES: Final = 10_000.0


class _Shape(msgspec.Struct, frozen=True):
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    rope_theta: float | None = None


def options_of(config: Any, source: str) -> ModelOptions:
    """Return the shape of the model in config.json.

    Raises:
        InputError: the shape is not ESM-2's. The message names the key.
    """
    if not isinstance(config, dict):
        raise InputError("config.json is not a JSON object", source=source)
    for key, expected in REQUIRED.items():
        if config.get(key) != expected:
            raise InputError(
                f"config.json has {key} {config.get(key)!r}, ESM-2 has {expected!r}", source=source
            )
    for key, (expected, why) in _COMPUTED.items():
        value = config.get(key, _DEFAULTS[key])
        if (value or expected) != expected:
            how = (
                ""
                if key in config
                else f", for it lacks the key and transformers' default is {_DEFAULTS[key]}"
            )
            raise InputError(f"config.json has {key} {value!r}{how}: {why}", source=source)
    try:
        shape = msgspec.convert(config, _Shape)
        return ModelOptions(
            layers=shape.num_hidden_layers,
            hidden_size=shape.hidden_size,
            heads=shape.num_attention_heads,
            ffn_size=shape.intermediate_size,
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise InputError(f"config.json: {error}", source=source) from error


def renamed(tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Return the tensors by the names that modules have.

    Some versions of transformers write weight and bias of norms as gamma and beta.

    Raises:
        InputError: a tensor has both names.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        new = re.sub(r"\.beta$", ".bias", re.sub(r"\.gamma$", ".weight", name))
        if new in found or (new != name and new in tensors):
            raise InputError(
                f"its weights have both {new} and its other name {name}", source=source
            )
        found[new] = tensor
    return found


def check_tensors(
    tensors: Mapping[str, Tensor], used: set[str], config: Mapping[str, Any], source: str
) -> None:
    """Check that the import uses all tensors that the model computes with, and that all are finite.

    Args:
        used: names of the tensors that are imported.
    Raises:
        InputError: names the tensor.
    """
    _check_decoder(tensors, config, source)
    left = sorted(
        name for name in set(tensors) - used - set(_DECODER) if not _UNUSED.fullmatch(name)
    )
    if left:
        raise InputError(
            f"its weights hold {left[0]} and {len(left) - 1} more that ESM-2 does not have: what "
            "they do would be lost",
            source=source,
        )
    if (config.get("rope_theta") or _FREQUENCIES) != _FREQUENCIES and not any(
        name.endswith("inv_freq") for name in tensors
    ):
        raise InputError(
            f"config.json has rope_theta {config['rope_theta']}, ESM-2 has {_FREQUENCIES}, and "
            "the weights hold no inv_freq",
            source=source,
        )
    for name in sorted(used):
        if not bool(torch.isfinite(tensors[name]).all()):
            raise InputError(f"{name} holds numbers that are not finite", source=source)


def _check_decoder(tensors: Mapping[str, Tensor], config: Mapping[str, Any], source: str) -> None:
    """Check that the decoder is the embedding, and has no bias but that of the head.

    Raises:
        InputError: it is another.
    """
    embedding = tensors[_EMBEDDING]
    decoder = tensors.get(
        _DECODER[0], None if config.get("tie_word_embeddings", True) else torch.empty(0)
    )
    if decoder is not None and not (
        decoder.shape == embedding.shape and torch.equal(decoder, embedding)
    ):
        raise InputError(
            "its decoder is not tied to its embedding (tie_word_embeddings, "
            "lm_head.decoder.weight), as ESM-2's is",
            source=source,
        )
    bias = tensors.get(_DECODER[1])
    if bias is not None and not torch.equal(bias, tensors["lm_head.bias"]):
        raise InputError(
            "its decoder has a bias of its own (lm_head.decoder.bias), beside lm_head.bias",
            source=source,
        )


def check_shapes(
    found: Mapping[str, Tensor], expected: Mapping[str, torch.Size], source: str
) -> None:
    """Check that our tensors have the shapes that follow from config.json.

    Raises:
        InputError: names the tensor.
    """
    for name, tensor in found.items():
        if tensor.shape != expected.get(name):
            raise InputError(
                f"{name} has shape {list(tensor.shape)}, config.json means "
                f"{list(expected.get(name, ()))}",
                source=source,
            )


def check_name(name: Any, folder: Path) -> str:
    """Return a file name from an index, after a check that it names a file in the folder.

    Raises:
        InputError: it does not.
    """
    if not isinstance(name, str) or Path(name).name != name:
        raise InputError(
            f"its index names {name!r}, which is not a file of the folder", source=str(folder)
        )
    return name
