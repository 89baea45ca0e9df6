"""Starting point of a run: the last checkpoint in its folder, or a Hugging Face model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from schemas.errors import CheckpointError
from schemas.models import ModelOptions
from schemas.text.phrases import plural
from trainer.checkpoints.checkpoint import CHECKPOINTS, Checkpoints
from trainer.checkpoints.latest import KEPT, LATEST, check_latest, names, read_latest
from trainer.checkpoints.run_state import RunState, read_state
from trainer.config import PRESETS, TrainOptions
from trainer.distributed.agreement import run_on_main
from trainer.distributed.topology import Topology
from trainer.model import huggingface


def last_state(options: TrainOptions, topology: Topology) -> RunState | None:
    """Return the state of the last checkpoint in the run's folder, on all ranks. Return None for a
    new run.

    Raises:
        ValueError: there is a checkpoint, but --resume is never, or no file names the last one.
        CheckpointError: the checkpoint is damaged. The message names an undamaged checkpoint, and
            says how to resume from it.
    """
    out = Path(options.output.out)
    folder = out / CHECKPOINTS
    latest: str = run_on_main(topology, partial(_latest, out, resume=options.output.resume))
    if not latest:
        return None
    check_latest(folder, latest, topology)
    state: RunState = run_on_main(topology, lambda: read_state(folder / latest))
    if Checkpoints.name(state.step) != latest:
        raise CheckpointError(
            f"{folder / latest} is the checkpoint of step {state.step:,} under another name: "
            f"rename it to {Checkpoints.name(state.step)}"
        )
    return state


def _latest(out: Path, *, resume: str) -> str:
    """Return the name of the last checkpoint; "" if there is none."""
    folder = out / CHECKPOINTS
    latest = read_latest(folder)
    found = names(folder)
    if not latest and found:
        raise ValueError(
            f"{folder} has checkpoints, but no file `{LATEST}`: create that file with the name of "
            f"a checkpoint, such as {found[-1]}. {KEPT}. Or choose another --out"
        )
    if latest and resume == "never":
        raise ValueError(
            f"{out} holds a run, but --resume is never: choose another --out, or remove that folder"
        )
    return latest


def from_hugging_face(
    options: TrainOptions, topology: Topology
) -> tuple[TrainOptions, dict[str, Tensor], str]:
    """Load the Hugging Face model named by --init-from.

    Only rank 0 loads the tensors. The other ranks return tensors on the meta device (without data).

    Returns:
        The options, with the shape of that model.
        The tensors of that model, by name.
        A sentence about the shape.
    """
    found: list[dict[str, Tensor]] = []

    def shape() -> tuple[ModelOptions, dict[str, torch.Size]]:
        model, tensors = huggingface.load(options.output.init_from)
        found.append(tensors)
        return model, {name: tensor.shape for name, tensor in tensors.items()}

    model, shapes = run_on_main(topology, shape)
    tensors = (
        found[0]
        if found
        else {name: torch.empty(size, device="meta") for name, size in shapes.items()}
    )
    model = replace(model, gelu=options.model.gelu)
    return replace(options, model=model), tensors, _shape_note(options, model)


def _shape_note(options: TrainOptions, model: ModelOptions) -> str:
    """Return a sentence about the shape of a loaded model, and about the shape that it replaces."""
    asked = "" if options.model == model else f", instead of {_shape(options.model)}"
    return f"the model has the shape of {options.output.init_from}: {_shape(model)}{asked}"


def _shape(model: ModelOptions) -> str:
    presets = {
        name: replace(preset.model, gelu=model.gelu) for name, (_, preset) in PRESETS.items()
    }
    known = next((f" ({name})" for name, shape in presets.items() if shape == model), "")
    return f"{plural(model.layers, 'layer')}, hidden size {model.hidden_size:,}{known}"
