"""Import and export of Hugging Face's EsmForMaskedLM, without transformers or a network.

`export` writes a folder that plain transformers (5.17 and newer) loads, without remote code. `load`
reads only safetensors files, because they cannot execute code. No value changes, inv_freq included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pipeline.storage.atomic_write import sync_files, sync_folder
from schemas.errors import InputError
from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from trainer.checkpoints.atomic_write import PARTIAL, publish, write
from trainer.config import ComputeOptions
from trainer.model.esm2 import PADDED_VOCABULARY, VOCABULARY
from trainer.model.huggingface_checks import (
    REQUIRED,
    check_name,
    check_no_run,
    check_shapes,
    check_tensors,
    options_of,
    renamed,
)
from trainer.model.initialize import build

WEIGHTS: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_SHARD_BYTES: Final = 5 << 30
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
    # Depending on the version of transformers, a checkpoint has one inv_freq, one per layer, or one
    # whose name has a literal "*" for the layer.
    rotary = [
        tensors[name].float()
        for name in sorted(tensors)
        if name.endswith("rotary_embeddings.inv_freq")
    ]
    if any(not torch.equal(rotary[0], other) for other in rotary):
        raise KeyError("a single inv_freq (the layers have different values)")
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


def load(folder: str | Path) -> tuple[ModelOptions, dict[str, Tensor]]:
    """Read an EsmForMaskedLM from a folder.

    Returns:
        Shape of the model, and tensors of Esm2 by name, float32, on the CPU.
    Raises:
        InputError: the folder has no EsmForMaskedLM or no safetensors, or the model is not ESM-2.
            The message says what to do.
    """
    folder = Path(folder)
    source = str(folder)
    check_no_run(folder)
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError, RecursionError) as error:
        hint = (
            "use a local folder. To download a model from the Hugging Face hub, run "
            "`hf download NAME --local-dir FOLDER`"
        )
        raise InputError(f"no readable config.json ({error}): {hint}", source=source) from error
    options = options_of(config, source)
    try:
        tensors = _Noted(renamed(dict(_tensors(folder)), source))
        found = from_esm(tensors, options)
        check_tensors(tensors, tensors.used, config, source)
    except KeyError as error:
        raise InputError(
            f"the weights are not those of an EsmForMaskedLM: {error.args[0]} is missing",
            source=source,
        ) from error
    except (RuntimeError, OSError, SafetensorError) as error:
        raise InputError(
            f"the weights cannot be read, or do not have the shapes of config.json: {error}",
            source=source,
        ) from error
    check_shapes(
        found,
        {
            name: tensor.shape
            for name, tensor in build(options, ComputeOptions(backend="torch")).named_tensors()
        },
        source,
    )
    return options, found


class _Noted(dict[str, Tensor]):
    """Tensors by name.

    used: names of the tensors that callers have read.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        found = super().__getitem__(name)
        self.used.add(name)
        return found


def _tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    files = [folder / WEIGHTS]
    if (folder / _INDEX).exists():
        try:
            names = set(json.loads((folder / _INDEX).read_text())["weight_map"].values())
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise InputError(f"{_INDEX} cannot be read: {error}", source=str(folder)) from error
        files = sorted(folder / check_name(name, folder) for name in names)
    for file in files:
        if not file.exists():
            remedy = (
                "AutoModelForMaskedLM.from_pretrained(FOLDER).save_pretrained(FOLDER) converts "
                "other formats"
            )
            raise InputError(f"no {file.name}: {remedy}", source=str(folder))
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (not a dict)
                yield name, tensors.get_tensor(name)


def export(
    folder: str | Path, tensors: Mapping[str, Tensor], options: ModelOptions, *, max_seq_len: int
) -> None:
    """Write a folder that `AutoModelForMaskedLM.from_pretrained` and
    `AutoTokenizer.from_pretrained` load.

    Args:
        tensors: tensors of Esm2 by name, not sharded.
        max_seq_len: maximum length of a sequence in tokens, for config.json and the tokenizer.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _save_weights(folder, to_esm(tensors, options))
    for name, content in _texts(options, max_seq_len).items():
        write(folder / name, content)
    sync_folder(folder.parent)  # otherwise a power cut may lose the folder's entry in its parent


def _save_weights(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the weights under the file names of transformers: one file, or several files of at most
    5 GiB with an index.
    """
    parts: list[dict[str, Tensor]] = [{}]
    for name, tensor in tensors.items():
        if parts[-1] and sum(t.nbytes for t in parts[-1].values()) + tensor.nbytes > _SHARD_BYTES:
            parts.append({})
        parts[-1][name] = tensor
    names = (
        [WEIGHTS]
        if len(parts) == 1
        else [f"model-{i + 1:05}-of-{len(parts):05}.safetensors" for i in range(len(parts))]
    )
    for name, part in zip(names, parts, strict=True):
        partial = folder / f"{name}{PARTIAL}"
        partial.unlink(missing_ok=True)
        partial.touch()
        mode = partial.stat().st_mode  # follows the umask; safetensors would leave mode 0600
        try:
            save_file(part, partial, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(f"{partial} could not be written: {error}") from error
        partial.chmod(mode)
        sync_files([partial])
        publish(partial, folder / name)
    if len(parts) > 1:
        total = sum(tensor.nbytes for tensor in tensors.values())
        where = {name: file for file, part in zip(names, parts, strict=True) for name in part}
        write(
            folder / _INDEX,
            json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=1),
        )


def _texts(options: ModelOptions, max_seq_len: int) -> dict[str, str]:
    special = {
        "cls_token": "<cls>",
        "eos_token": "<eos>",
        "mask_token": "<mask>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
    }
    config = {
        **REQUIRED,
        "architectures": ["EsmForMaskedLM"],
        "attention_probs_dropout_prob": 0.0,
        "emb_layer_norm_before": False,
        "hidden_dropout_prob": 0.0,
        "hidden_size": options.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": options.ffn_size,
        "is_folding_model": False,
        "max_position_embeddings": max_seq_len + 2,  # transformers counts positions from 2
        "num_attention_heads": options.heads,
        "num_hidden_layers": options.layers,
        "dtype": "float32",
    }
    return {
        "vocab.txt": "\n".join(ESM2.tokens),
        "special_tokens_map.json": json.dumps(special, indent=1),
        "tokenizer_config.json": json.dumps(
            {**special, "model_max_length": max_seq_len, "tokenizer_class": "EsmTokenizer"},
            indent=1,
        ),
        "config.json": json.dumps(config, indent=1, sort_keys=True),
    }
