"""Load a trained model: a run, an export of a run, or a folder of published weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import xxhash
from torch import Tensor

from schemas.errors import CheckpointError, InputError
from schemas.models import ModelOptions
from trainer import precision
from trainer.checkpoints.checkpoint import CHECKPOINTS, read_tensors
from trainer.checkpoints.file_hashes import damage_found_here
from trainer.checkpoints.latest import latest_content
from trainer.checkpoints.new_folder import LAST
from trainer.checkpoints.run_state import read_state
from trainer.config import ComputeOptions
from trainer.distributed.agreement import run_on_main
from trainer.distributed.topology import Topology
from trainer.model import huggingface
from trainer.model.esm2 import Esm2
from trainer.model.initialize import build, fill


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Weights of a model.

    source: folder, and step of a run that is not complete, in words.
    digest: xxh3_128 digest of the values.
    tensors: tensors of Esm2 by name, fp32, on the CPU; on ranks other than 0, on the meta device.
    """

    source: str
    options: ModelOptions
    digest: str
    tensors: Mapping[str, Tensor]

    def on_device(self, compute: ComputeOptions, topology: Topology, *, fp8: bool = False) -> Esm2:
        """Return the model on the device of this rank. All ranks must call this.

        Args:
            compute: compute options, with `auto` resolved.
            fp8: True to run matrix products in FP8 (backend te only).
        """
        model = build(self.options, compute)
        for parameter in model.parameters():
            parameter.data = parameter.data.to(precision.stored_dtype(compute))
            parameter.requires_grad_(False)
        fill(model, self.tensors, seed=0, topology=topology)
        if fp8:
            from trainer.model.layer_fp8 import to_fp8  # needs Transformer Engine

            to_fp8(model)
        return model.eval()


def load_weights(path: str, topology: Topology) -> Weights:
    """Read the weights of a model. All ranks must call this.

    Args:
        path: folder of a run, of an export, or of an EsmForMaskedLM. For a run, the weights are
            those of OUT/export or, if the run is not complete, of the last checkpoint.
    Raises:
        InputError, CheckpointError, ThdpackError: the folder holds no model, or a damaged one.
    """
    found: list[tuple[str, ModelOptions, Mapping[str, Tensor]]] = []

    def read() -> tuple[str, ModelOptions, str, dict[str, torch.Size]]:
        found.append(_read(Path(path)))
        source, options, tensors = found[0]
        return source, options, _digest(tensors), {n: t.shape for n, t in tensors.items()}

    source, options, digest, shapes = run_on_main(topology, read)
    tensors = (
        found[0][2]
        if found
        else {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    )
    return Weights(source=source, options=options, digest=digest, tensors=tensors)


def _read(folder: Path) -> tuple[str, ModelOptions, Mapping[str, Tensor]]:
    """Return a description of the model's source, its shape and its tensors."""
    is_run = (folder / CHECKPOINTS).is_dir() and not (folder / "config.json").exists()
    if is_run and not (folder / LAST / "config.json").exists():
        return _from_checkpoint(folder)
    folder = folder / LAST if is_run else folder
    options, tensors = huggingface.load(folder)
    return str(folder), options, tensors


def _from_checkpoint(folder: Path) -> tuple[str, ModelOptions, Mapping[str, Tensor]]:
    """Read the last checkpoint of a run."""
    name = latest_content(folder / CHECKPOINTS).strip()
    if not name:
        raise InputError(
            "this run has no checkpoint yet: wait until it has one, or give another MODEL",
            source=str(folder),
        )
    state = read_state(folder / CHECKPOINTS / name)
    shape = state.options.model
    model = build(shape, ComputeOptions(backend="torch"))
    tensors = {key: torch.empty(each.shape) for key, each in model.named_tensors()}
    checkpoint = folder / CHECKPOINTS / name
    try:
        read_tensors(checkpoint, {f"model.{key}": each for key, each in tensors.items()})
    except CheckpointError as error:
        raise CheckpointError(
            f"{damage_found_here(checkpoint) or error}. The command that trained this model names "
            "the newest complete checkpoint: resume from it, which also writes the export"
        ) from error
    return f"{folder} (step {state.step:,})", shape, tensors


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = xxhash.xxh3_128()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().numpy().data)
    return digest.hexdigest()
