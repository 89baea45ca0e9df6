"""Checks of a Hugging Face folder before import. The checks refuse a model whose computation
differs from ESM-2, and a model with a tensor that ESM-2 does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
"""Keys and values that config.json must have."""
_BIONEMO: Final = "nv_esm"
"""model_type of BioNeMo's models with layers of Transformer Engine."""
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
_DROPOUT: Final = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_COMPUTED: Final[Mapping[str, tuple[Any, str]]] = {
    "emb_layer_norm_before": (False, "ESM-2 has no LayerNorm before its layers"),
    "is_decoder": (False, "this trainer supports bidirectional attention only"),
    "add_cross_attention": (False, "this trainer has no cross-attention"),
    "is_folding_model": (False, "this trainer trains language models only"),
    **dict.fromkeys(_DROPOUT, (0.0, "this trainer has no dropout")),
    "rope_scaling": (None, "this trainer does not scale rotary embeddings"),
    "pruned_heads": (None, "this trainer does not support pruned heads"),
}
"""For each of these keys of config.json, the only value that this trainer supports, and the reason
to refuse other values. An empty object or null has the same meaning as the supported value.
"""
_EMBEDDING: Final = "esm.embeddings.word_embeddings.weight"
_DECODER: Final = ("lm_head.decoder.weight", "lm_head.decoder.bias")
_UNUSED: Final = re.compile(
    r"esm\.embeddings\.(position_ids|position_embeddings\.weight)|esm\.pooler\..*|.*rotary_embeddings\.inv_freq"
)
"""Names of tensors that `check_tensors` accepts although the import does not read them by name.
A masked language model with rotary embeddings uses only inv_freq, which is imported separately.
"""
_FREQUENCIES: Final = 10_000.0


class _Shape(msgspec.Struct, frozen=True):
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    rope_theta: float | None = None


def options_of(config: Any, source: str) -> ModelOptions:
    """Return the shape of the model that config.json describes.

    Raises:
        InputError: config.json is invalid, or does not describe an ESM-2. The message names all
            wrong keys, each on its own line if there are several.
    """
    if not isinstance(config, dict):
        raise InputError("config.json is not a JSON object", source=source)
    if config.get("model_type") == _BIONEMO:
        raise InputError(
            "these are weights in BioNeMo's Transformer Engine format (model_type nv_esm): convert "
            "them with BioNeMo's convert_esm_te_to_hf first, as docs/coming-from.md shows",
            source=source,
        )
    wrong = list(_wrong_keys(config))
    if config.get("model_type") != REQUIRED["model_type"]:
        del wrong[1:]  # report only the type: a model of another type has other keys
    if wrong:
        raise InputError(f"config.json has {_listed(wrong)}", source=source)
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


def _listed(wrong: Sequence[str]) -> str:
    """Return the results of `_wrong_keys` as text, with the remedy for dropout once at its end.

    Several values have a line each, because they do not fit into one.
    """
    if len(wrong) == 1:
        text, separator = wrong[0], ". "
    else:
        lines = "".join(f"\n  {line}" for line in wrong)
        text, separator = f"{len(wrong)} values that cannot be used:{lines}", "\n"
    dropout = [key for key in _DROPOUT if any(line.startswith(f"{key} ") for line in wrong)]
    if not dropout:
        return text
    keys = " and ".join(dropout)
    return f"{text}{separator}To train without dropout, set {keys} to 0.0 in config.json"


def _wrong_keys(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield each key of config.json whose value is refused, with the value and the reason."""
    for key, expected in REQUIRED.items():
        if config.get(key) != expected:
            yield f"{key} {config.get(key)!r}, but ESM-2 has {expected!r}"
    for key, (expected, why) in _COMPUTED.items():
        value = config.get(key, _DEFAULTS[key])
        if (value or expected) != expected:
            how = (
                ""
                if key in config
                else f" (the key is missing, and transformers' default is {_DEFAULTS[key]})"
            )
            yield f"{key} {value!r}{how}: {why}"
    for field in msgspec.structs.fields(_Shape):
        if field.required and field.name not in config:
            yield f"no {field.name}"
            continue
        try:
            msgspec.convert(config.get(field.name, field.default), field.type)
        except msgspec.ValidationError as error:
            yield f"{field.name} {config[field.name]!r}: {error}"


def renamed(tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Return the tensors under current names: `gamma` becomes `weight`, and `beta` becomes `bias`.
    Some versions of transformers name the tensors of norms `gamma` and `beta`.

    Raises:
        InputError: a tensor exists under both names.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        new = re.sub(r"\.beta$", ".bias", re.sub(r"\.gamma$", ".weight", name))
        if new in found or (new != name and new in tensors):
            raise InputError(
                f"the weights have the same tensor twice, as {new} and as {name}", source=source
            )
        found[new] = tensor
    return found


def check_tensors(
    tensors: Mapping[str, Tensor], used: set[str], config: Mapping[str, Any], source: str
) -> None:
    """Check that the import does not ignore a tensor that affects the model, and that all imported
    numbers are finite.

    Args:
        used: names of the imported tensors.
    Raises:
        InputError: a tensor fails the check. The message names the tensor.
    """
    _check_decoder(tensors, config, source)
    left = sorted(
        name for name in set(tensors) - used - set(_DECODER) if not _UNUSED.fullmatch(name)
    )
    if left:
        raise InputError(
            f"the weights have {len(left)} tensors that ESM-2 does not have, such as {left[0]}: "
            "this trainer cannot import the model",
            source=source,
        )
    if (config.get("rope_theta") or _FREQUENCIES) != _FREQUENCIES and not any(
        name.endswith("inv_freq") for name in tensors
    ):
        raise InputError(
            f"config.json has rope_theta {config['rope_theta']}, but ESM-2 has {_FREQUENCIES}: "
            "another rope_theta can be imported only if the weights contain inv_freq",
            source=source,
        )
    for name in sorted(used):
        if not bool(torch.isfinite(tensors[name]).all()):
            raise InputError(f"{name} has numbers that are not finite", source=source)


def _check_decoder(tensors: Mapping[str, Tensor], config: Mapping[str, Any], source: str) -> None:
    """Check that the decoder's weights are the embedding, and that lm_head.bias is its only bias.

    Raises:
        InputError: the decoder has other weights or another bias.
    """
    embedding = tensors[_EMBEDDING]
    decoder = tensors.get(
        _DECODER[0], None if config.get("tie_word_embeddings", True) else torch.empty(0)
    )
    if decoder is not None and not (
        decoder.shape == embedding.shape and torch.equal(decoder, embedding)
    ):
        raise InputError(
            "the decoder is not tied to the embedding (tie_word_embeddings, "
            "lm_head.decoder.weight), but ESM-2 has a tied decoder",
            source=source,
        )
    bias = tensors.get(_DECODER[1])
    if bias is not None and not torch.equal(bias, tensors["lm_head.bias"]):
        raise InputError(
            "the decoder has a second bias (lm_head.decoder.bias) that differs from lm_head.bias",
            source=source,
        )


def check_shapes(
    found: Mapping[str, Tensor], expected: Mapping[str, torch.Size], source: str
) -> None:
    """Check that tensors of Esm2 have the shapes that config.json requires.

    Raises:
        InputError: a tensor has another shape. The message names the tensor.
    """
    for name, tensor in found.items():
        if tensor.shape != expected.get(name):
            raise InputError(
                f"{name} has shape {list(tensor.shape)}, but config.json requires "
                f"{list(expected.get(name, ()))}",
                source=source,
            )


def check_name(name: Any, folder: Path) -> str:
    """Check that a file name from an index has no path, and return it.

    Raises:
        InputError: the name is not a string, or names a file outside of the folder.
    """
    if not isinstance(name, str) or Path(name).name != name:
        raise InputError(
            f"the index names {name!r}, which is not a file of the folder", source=str(folder)
        )
    return name


def check_no_run(folder: Path) -> None:
    """Refuse the folder of a run. The model of a run is in its sub-folder `export`.

    Raises:
        InputError: this is the folder of a run. If the run has a model, the message names the
            model's folder.
    """
    if (folder / "config.json").exists() or not (folder / "checkpoints").is_dir():
        return
    if (folder / "export" / "config.json").exists():
        remedy = f"use {folder / 'export'}, which has the run's model"
    else:
        remedy = "the run has no model yet, because it writes its model when it ends"
    raise InputError(f"this is the folder of a run; {remedy}", source=str(folder))
