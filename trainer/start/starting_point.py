"""Prepare a run: find its starting point (the last checkpoint in its folder, or a Hugging Face
model), open its readers, and resolve options. Nothing is trained or allocated on the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from schemas.errors import CheckpointError
from schemas.manifest import Manifest
from schemas.models import ModelOptions
from schemas.text.phrases import plural
from trainer import precision
from trainer.batch import choose_steps
from trainer.checkpoints.checkpoint import CHECKPOINTS, Checkpoints
from trainer.checkpoints.latest import KEPT, LATEST, check_latest, names, read_latest
from trainer.checkpoints.new_folder import (
    exists_or_creatable,
    refuse_file,
    refuse_foreign_folder,
    with_folder_errors,
)
from trainer.checkpoints.run_lock import LOCK, RunLock, run_lock
from trainer.checkpoints.run_state import RunState, read_state
from trainer.config import PRESETS, TrainOptions, flag
from trainer.config.checks import option_errors
from trainer.distributed.agreement import check_same, options_of, run_on_main, versions
from trainer.distributed.topology import Topology
from trainer.model import huggingface
from trainer.monitoring.layer_statistics import check_statistics
from trainer.monitoring.trackers import check_trackers
from trainer.optimizer import with_warmup
from trainer.readers.mixing import changed_weights
from trainer.readers.open_readers import Readers, open_readers
from trainer.scores.evaluation import Evaluation, open_evaluations
from trainer.start.disk_space import check_disk_space
from trainer.start.fit import fitted, memory_of
from trainer.start.resume_options import changes, check_valid_split, resumed, with_warmup_of


@dataclass(frozen=True, kw_only=True, slots=True)
class StartingPoint:
    """A run that is ready to start or to resume.

    options: options of the run, with `auto` resolved.
    before: state of the last checkpoint; None for a new run.
    initial: initial parameters by name, from --init-from. All others are drawn at random.
    changes: training options that a resume has changed, in words.
    notes: messages about the shape of the model of --init-from, the number of steps, a batch or
        warm-up that the trainer has changed, and a disk that is nearly full.
    evaluations: the sets of --evaluate.
    memory: estimated and available memory of each GPU, in words; "" if there is no estimate.
    not_captured: reason why `--cuda-graph auto` does not capture the step in a CUDA graph; "" if
        the step is captured, if --cuda-graph is not auto, and on a CPU.
    lock: lock of the run's folder.
    """

    options: TrainOptions
    topology: Topology
    before: RunState | None
    initial: Mapping[str, Tensor]
    readers: Readers
    changes: str
    notes: list[str]
    evaluations: Sequence[Evaluation]
    memory: str
    not_captured: str
    lock: RunLock

    @property
    def step(self) -> int:
        """Number of steps that the run has done."""
        return self.before.step if self.before else 0

    @property
    def is_finished(self) -> bool:
        """True if no step is left."""
        return self.step >= self.options.optimizer.steps

    @property
    def manifest(self) -> Manifest:
        return self.readers.manifest

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches of this rank in a step."""
        return self.options.data.micro_batches(self.topology.data_ranks)

    @property
    def epoch_buckets(self) -> int:
        """Number of buckets in the first epoch. A mixture's epoch ends before a dataset repeats."""
        return self.manifest.splits["train"].buckets


@option_errors()
def prepare(options: TrainOptions, topology: Topology, stack: ExitStack) -> StartingPoint:
    """Check the options and the files of a run, and choose the options that the user left open.

    A dry run does not create the run's folder. If the folder exists, a dry run locks it.

    Args:
        stack: ExitStack that will close the run's lock and readers.
    Raises:
        OptionError, ThdpackError: see `train.train`.
    """
    # checked before the first collective that depends on the options
    check_same(topology, {**versions(), **options_of(options)})
    topology = topology.for_options(options.compute)
    options = replace(options, compute=precision.resolve(options.compute, topology.device))
    check_trackers(options)
    check_statistics(options)
    lock = stack.enter_context(_lock(options, topology))
    before = last_state(options, topology)
    shape_note = ""
    if before:
        options = resumed(options, before.options)
    elif options.output.init_from:
        shape_note = _shape_note(options, topology)
    readers, options, batch_note = open_readers(options, topology, stack, before)
    if before:
        _load_position(readers, before, options)
    options, steps_note = choose_steps(options, readers.manifest)
    if before:  # after choose_steps, because --epochs needs the data
        options = with_warmup_of(before.options, options, before.step)
        check_valid_split(options, before.options, before.step)
    options, warmup_note = with_warmup(options)
    options, topology, not_captured = fitted(options, readers.manifest, topology)
    # checked again, because `auto` may mean something else on ranks with other hardware or packages
    check_same(topology, options_of(options))
    memory = memory_of(options, readers.manifest, topology)
    evaluations = open_evaluations(options.output.evaluate, readers.manifest, topology)
    checkpoints, step = Path(options.output.out) / CHECKPOINTS, before.step if before else 0
    disk_note = run_on_main(topology, lambda: check_disk_space(options, checkpoints, step=step))
    # last, because reading the weights of a large model takes minutes
    starts = options.output.init_from and not before
    initial = _initial_parameters(options, topology) if starts else {}
    return StartingPoint(
        options=options,
        topology=topology,
        before=before,
        initial=initial,
        readers=readers,
        changes=changes(options, before.options) if before else "",
        notes=list(filter(None, (shape_note, batch_note, steps_note, warmup_note, disk_note))),
        evaluations=evaluations,
        memory=memory,
        not_captured=not_captured,
        lock=lock,
    )


def _lock(options: TrainOptions, topology: Topology) -> AbstractContextManager[RunLock]:
    """Return the lock of the run's folder. In a dry run, a folder that does not exist is not
    created, and its lock does nothing.

    Raises:
        ValueError: --out is a file, or a folder of other files.
        ThdpackError: see `run_lock`.
    """
    out = Path(options.output.out)
    run_on_main(topology, lambda: refuse_file(out))
    run_on_main(topology, lambda: with_folder_errors(refuse_foreign_folder, out))
    if options.output.dry_run and not run_on_main(topology, lambda: exists_or_creatable(out)):
        return nullcontext(RunLock(out / LOCK))
    return run_lock(out, topology)


def _load_position(readers: Readers, before: RunState, options: TrainOptions) -> None:
    """Move the reader to the position of the checkpoint.

    Raises:
        ValueError: the checkpoint belongs to a run on another dataset, on an earlier build of this
            dataset, or on a mixture with other weights or another --reweight.
    """
    then, digest = before.options.data, readers.train.state_dict()["manifest"]
    if before.reader.get("manifest", digest) != digest:
        out, data = options.output.out, " ".join(then.data)
        if changed := changed_weights(options.public().data, then):
            words = [f"--data {text}" for text in then.data]
            words += [f"--reweight {text}" for text in then.reweight]
            without = "" if then.reweight else " without --reweight"
            raise ValueError(
                f"{out} holds the state of a run on the same datasets with {changed}: use "
                f"{' '.join(words)}{without}, or choose another --out"
            )
        if options.public().data.data == then.data:
            raise ValueError(
                f"{out} holds the state of a run on {data}, which has changed since that run "
                "began. To resume, build the earlier dataset in another folder, and use it with "
                "--data: the same inputs and options give the same bytes (if variants were added, "
                "give the number of variants that the dataset had before: --variants N --out "
                "OTHER). Or begin a new run in another --out"
            )
        raise ValueError(
            f"{out} holds the state of a run on another dataset, {data}: use the --data of that "
            "run (and, for a mixture, its weights and --reweight), or choose another --out"
        )
    readers.train.load_state_dict(before.reader)


def last_state(options: TrainOptions, topology: Topology) -> RunState | None:
    """Return the state of the last checkpoint in the run's folder, on all ranks. Return None for a
    new run.

    Raises:
        ValueError: there is a checkpoint, but --resume is never, or the file `latest` is missing.
        CheckpointError: the checkpoint is damaged. The message names the newest undamaged
            checkpoint, if there is one, and says how to resume from it.
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
            f"{folder} has checkpoints, but no file `{LATEST}`: create that file, and write the "
            f"name of a checkpoint into it, such as {found[-1]}. {KEPT}. Or choose another --out"
        )
    if latest and resume == "never":
        raise ValueError(
            f"{out} holds a run, but --resume is never: choose another --out, or remove that folder"
        )
    return latest


def _initial_parameters(options: TrainOptions, topology: Topology) -> Mapping[str, Tensor]:
    """Return the tensors of the model of --init-from, by name.

    Only rank 0 loads the tensors. The other ranks return tensors on the meta device (without data).
    """
    found: list[dict[str, Tensor]] = []

    def shapes() -> dict[str, torch.Size]:
        found.append(huggingface.load(options.output.init_from)[1])
        return {name: tensor.shape for name, tensor in found[0].items()}

    sizes: dict[str, torch.Size] = run_on_main(topology, shapes)
    if found:
        return found[0]
    return {name: torch.empty(size, device="meta") for name, size in sizes.items()}


def _shape_note(options: TrainOptions, topology: Topology) -> str:
    """Check that the model of --init-from has the shape of the run. Return a sentence about the
    shape.

    Raises:
        ValueError: the preset, and the flags that change its shape, give another shape.
    """
    folder, asked = options.output.init_from, options.model
    model = run_on_main(topology, lambda: huggingface.shape_of(folder))
    model = replace(model, gelu=asked.gelu)
    if model == asked:
        return f"the model has the shape of {folder}: {_shape(model)}"
    preset = _preset(model)
    sizes = {flag(name): size for name, size in asdict(model).items() if name != "gelu"}
    shape = " ".join(f"{name} {size}" for name, size in sizes.items())
    without = f"without flags that change its shape ({', '.join(sizes)})"
    remedy = f"the preset {preset} {without}" if preset else shape
    raise ValueError(
        f"--init-from {folder} is a model of {_shape(model)}, but the command asks for "
        f"{_shape(asked)}: use {remedy}, or the weights of another model"
    )


def _preset(model: ModelOptions) -> str:
    """Return the preset of a shape; "" if there is none."""
    shapes = {name: replace(preset.model, gelu=model.gelu) for name, (_, preset) in PRESETS.items()}
    return next((name for name, shape in shapes.items() if shape == model), "")


def _shape(model: ModelOptions) -> str:
    preset = _preset(model)
    known = f" ({preset})" if preset else ""
    return f"{plural(model.layers, 'layer')}, hidden size {model.hidden_size:,}{known}"
