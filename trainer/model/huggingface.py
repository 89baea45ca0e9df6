"""Import and export of Hugging Face's EsmForMaskedLM, without transformers and without a network.

`export` writes a folder that plain transformers (5.17 and newer) loads, without remote code. `load`
reads only safetensors files, because they cannot execute code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pipeline.storage.atomic_write import sync_files, sync_folder
from schemas.errors import InputError
from schemas.manifest import MANIFEST_NAME
from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from trainer.checkpoints.atomic_write import PARTIAL, publish, write
from trainer.config import ComputeOptions
from trainer.model.esm_tensors import from_esm, to_esm
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

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")
"""Name of a model on the Hugging Face hub: owner and model."""
_SHARD_BYTES: Final = 5 << 30


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
    config, options = _config(folder)
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


def shape_of(folder: str | Path) -> ModelOptions:
    """Return the shape of the EsmForMaskedLM in a folder, without reading its weights.

    Raises:
        InputError: the folder has no EsmForMaskedLM, or the model is not ESM-2. The message says
            what to do.
    """
    return _config(Path(folder))[1]


def _config(folder: Path) -> tuple[dict[str, Any], ModelOptions]:
    """Return the content of config.json, and the shape of the model."""
    source = str(folder)
    check_no_run(folder)
    if (folder / MANIFEST_NAME).exists():
        raise InputError(
            "this is a dataset, not a model; give the folder of a model", source=source
        )
    try:
        config = json.loads((folder / CONFIG).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{_unreadable(folder, error)}: {_hint(folder)}", source=source) from error
    return config, options_of(config, source)


def _unreadable(folder: Path, error: Exception) -> str:
    """Return why the config.json of a folder cannot be read."""
    if not folder.exists():
        return "no such folder"
    if not folder.is_dir():
        return "a file, expected a folder"
    if isinstance(error, FileNotFoundError):
        return f"the folder has no {CONFIG}"
    if isinstance(error, OSError):
        return f"{CONFIG} cannot be read: {error.strerror}"
    at = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
    return f"{CONFIG} is not JSON{at}, so it is damaged or incomplete"


def _hint(folder: Path) -> str:
    """Return which folders hold a model, and how to get one."""
    name, local = "NAME", "FOLDER"
    if _HUB_NAME.fullmatch(str(folder)) and not folder.parent.exists():
        name, local = str(folder), folder.name
    return (
        "give the folder of a model, such as RUN/export of a run of `thdpack train`, or a folder "
        "that transformers' save_pretrained wrote. To download a model from the Hugging Face hub, "
        f"run `hf download {name} --local-dir {local}`"
    )


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
