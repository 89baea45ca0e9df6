"""What a run consists of, put together as it was left: reader, model, optimizer, checkpoints. `train.py` steps it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.reader import ShardReader
from schemas.errors import ThdpackError
from schemas.manifest import Manifest
from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from trainer import huggingface, precision
from trainer.checkpoint import Checkpoints, read_state, write
from trainer.config import DataOptions, TrainOptions
from trainer.feed import Feed
from trainer.fits import available_memory, memory_of, resolve_reshard, setting_of
from trainer.initialize import build, fill
from trainer.masking import Masker
from trainer.metrics import Report
from trainer.optimizer import Optimizer
from trainer.parallel import Parallel, whole
from trainer.statistics import statistics
from trainer.step import Step, why_not_captured
from trainer.validate import MASK_SEED, validate

_FIXED: Final = ("seed", "mask_probability", "tokens_per_step")
"""Data options that a run cannot change when it goes on."""


class Run:
    """A run at a step: the number of steps done, `step`, and everything that the next one needs."""

    def __init__(self, options: TrainOptions, parallel: Parallel, stack: ExitStack) -> None:
        """Start, or go on from the last checkpoint in the run's folder.

        Args:
            stack: closes what has to be closed.
        Raises:
            ValueError, ThdpackError: as `train` says.
        """
        parallel = parallel.arranged(options.compute)
        self.parallel, self.out = parallel, Path(options.output.out)
        options = replace(options, compute=precision.resolve(options.compute, parallel.device))
        before = _from_main(parallel, partial(_before, self.out, options))
        imported: dict[str, Tensor] = {}
        if before:
            options = _continued(options, before["options"])
        elif options.output.init_from:
            options, imported = _imported(options, parallel)
        self.reader, self.valid, options = _open(options, parallel, stack)
        compute = options.compute
        if compute.reshard == "auto":
            setting = setting_of(options, self.reader.manifest, parallel)
            compute = replace(compute, reshard=resolve_reshard(setting, available=available_memory(parallel.device)))
        self.options = options = replace(options, compute=compute)
        self.memory = memory_of(options, self.reader.manifest, parallel)

        self.statistics = stack.enter_context(statistics(options, parallel))  # before the model: Transformer Engine's modules look for it as they are made
        self.model = build(options.model, compute, parallel.slices)
        for parameter in self.model.parameters():
            parameter.data = parameter.data.to(precision.stored_dtype(compute))
        parallel.shard(self.model, compute_dtype=precision.compute_dtype(compute), reshard=compute.reshard, gather_ahead=compute.gather_ahead)
        masters = fill(self.model, imported, seed=options.data.seed, parallel=parallel)
        self.optimizer = Optimizer(self.model, options.optimizer, masters)
        self.autocast = partial(precision.autocast, compute, parallel.device, sharded=parallel.world_size > 1)
        masker = partial(Masker, ESM2, probability=options.data.mask_probability, device=parallel.device, slices=parallel.slices)
        self.valid_masker = masker(seed=MASK_SEED, epoch_buckets=len(self.valid) if self.valid else 1)

        self.step, self.tokens = 0, 0
        self.best: dict[str, Any] = {"loss": None, "checkpoint": ""}
        self.checkpoints = Checkpoints(self.out / "checkpoints", parallel, keep_last=options.output.keep_last)
        if before:
            self._load(before)
        self.checkpoints.forget_after(self.step)
        self.statistics.begin(self.model, self.step)
        if parallel.is_main:
            write(self.out / "options.json", options.to_json())  # for people; what a run goes on with is in its checkpoints
        self.feed = Feed(self.reader, buckets=options.data.buckets_per_micro_batch, stride=parallel.data_ranks, device=parallel.device)
        self.not_captured = why_not_captured(compute, parallel, self.micro_batches) if compute.cuda_graph else ""
        captured = compute.cuda_graph and not self.not_captured
        self.step_once = Step(
            self.model, self.optimizer, masker(seed=options.data.seed, epoch_buckets=len(self.reader)), self.autocast, parallel,
            micro_batches=self.micro_batches, reduced_once=compute.reshard == "step", captured=captured,
            backward_in_autocast=precision.backward_in_autocast(compute),
        )  # fmt: skip

    @property
    def micro_batches(self) -> int:
        """Of this rank, in a step."""
        return self.options.data.buckets_per_step // (self.parallel.data_ranks * self.options.data.buckets_per_micro_batch)

    def is_due(self, every: int) -> bool:
        return every > 0 and self.step % every == 0

    def validate(self, report: Report) -> bool:
        """Measure on the valid split, if there is one. Whether this is the best so far."""
        if self.valid is None:
            return False
        with self.statistics.paused():
            found = validate(self.model, self.valid, self.valid_masker, self.parallel, self.autocast)
        report.validation(self.step, found)
        better = self.best["loss"] is None or found.loss < self.best["loss"]
        if better:
            self.best = {"loss": found.loss, "checkpoint": Checkpoints.name(self.step)}
        return better

    def save(self, *, wait: bool) -> None:
        """Begin to write a checkpoint, or write it, if `wait`."""
        state = {
            "tokens": self.tokens,
            "applied": int(self.optimizer.applied),
            "best": self.best,
            "reader": self.reader.state_dict(),
            "options": asdict(self.options),
        }
        self.checkpoints.save(self.step, {**self._tensors(), **self._optional_tensors()}, state, best=self.best["checkpoint"])
        if wait:
            self.checkpoints.wait()

    def export(self) -> None:
        """Write OUT/export, which plain transformers loads."""
        tensors = {}
        for name, tensor in self._tensors().items():
            kind, _, name = name.partition(".")
            if kind == "model":
                together = whole(tensor)  # of all ranks, one tensor at a time
                if self.parallel.is_main:
                    tensors[name] = together.cpu()
        if self.parallel.is_main:
            huggingface.export(self.out / "export", tensors, self.options.model, max_seq_len=self.reader.manifest.max_seq_len)

    @property
    def description(self) -> str:
        model, data, compute, manifest = self.options.model, self.options.data, self.options.compute, self.reader.manifest
        where_to = _arrangement(self.options, self.parallel) + (f", {self.memory} each" if self.memory else "")
        where = f"going on from step {self.step:,}" if self.step else "starting"
        low = precision.low_layers(compute, model.layers)
        numbers = f"{compute.precision} in {sum(low)} of {len(low)} layers" if 0 < sum(low) < len(low) else compute.precision
        graph = f"no CUDA graph, for {self.not_captured} · " if self.not_captured else "CUDA graph · " if compute.cuda_graph else ""
        valid = f"{len(self.valid):,} for validation" if self.valid else "none for validation: --valid-fraction 0.01 of thdpack preprocess makes some"
        return (
            f"{where}: {model.parameters / 1e6:,.1f} M parameters, backend {compute.backend}, {numbers}, {where_to} · {graph}"
            f"{data.buckets_per_step} buckets of {manifest.capacity:,} tokens a step, {self.micro_batches} micro-batches a rank · "
            f"{len(self.reader):,} buckets an epoch, {valid} · {self.out}"
        )

    def _tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds, fp32: `model.*`, `exp_avg.*`, `exp_avg_sq.*`."""
        return {**dict(self.optimizer.named_tensors()), **{f"model.{name}": buffer for name, buffer in self.model.named_buffers()}}

    def _optional_tensors(self) -> dict[str, Tensor]:
        """What another number of ranks or another precision does without: scaling state and random number generators."""
        tensors = {f"scaling.{name}": tensor for name, tensor in precision.scaling_tensors(self.model)}
        tensors[f"random.cpu.{self.parallel.rank}"] = torch.get_rng_state()
        if self.parallel.device.type == "cuda":
            tensors[f"random.cuda.{self.parallel.rank}"] = torch.cuda.get_rng_state()
        return tensors

    def _load(self, state: Mapping[str, Any]) -> None:
        self.reader.load_state_dict(state["reader"])
        precision.prepare_scaling(self.model, self.options.compute)
        optional = self._optional_tensors()
        self.checkpoints.load(Checkpoints.name(state["step"]), self._tensors(), optional=optional)
        self.optimizer.restored(state["applied"])
        torch.set_rng_state(optional[f"random.cpu.{self.parallel.rank}"])
        if self.parallel.device.type == "cuda":
            torch.cuda.set_rng_state(optional[f"random.cuda.{self.parallel.rank}"])
        self.step, self.tokens, self.best = state["step"], state["tokens"], state["best"]


def _arrangement(options: TrainOptions, parallel: Parallel) -> str:
    """How many devices, and how they share the work."""
    found = f"{parallel.world_size} × {parallel.device.type.upper()}"
    if parallel.world_size > 1:
        found += f", sharded over {parallel.world_size // parallel.replicate}, gathered for a {options.compute.reshard}"
    if parallel.slices.ranks > 1:
        found += f", {parallel.slices.ranks} to a bucket"
    return found


def _before(out: Path, options: TrainOptions) -> dict[str, Any]:
    """The state of the last checkpoint in the run's folder; empty if there is none.

    Raises:
        ValueError: there is one, and it is not to be used.
        CheckpointError: it cannot be read.
    """
    folder = out / "checkpoints"
    if not (folder / "latest").exists():
        if any(folder.glob("step-*[0-9]")):
            raise ValueError(f"{folder} has checkpoints, but no file `latest`: write the name of one into it, or remove them")
        return {}
    if options.output.resume == "never":
        raise ValueError(f"{out} holds a run, and --resume is never: choose another --out, or remove that folder")
    return read_state(folder / (folder / "latest").read_text().strip())


def _from_main(parallel: Parallel, ask: Any) -> Any:
    """What rank 0 finds, on all ranks; what it raises, they raise."""
    box: list[Any] = [None]
    if parallel.is_main:
        try:
            box = [ask()]
        except (ValueError, OSError, ThdpackError) as error:
            box = [ValueError(str(error))]
    dist.broadcast_object_list(box, src=0, group=parallel.checkpoint_group)
    if isinstance(box[0], ValueError):
        raise box[0]
    return box[0]


def _continued(options: TrainOptions, before: Mapping[str, Any]) -> TrainOptions:
    """Options of a run that goes on: its model and its batch are what they were.

    Raises:
        ValueError: others were asked for.
    """
    model, data, out = ModelOptions(**before["model"]), before["data"], options.output.out
    if options.output.init_from not in ("", before["output"]["init_from"]):
        raise ValueError(f"{out} holds a run that did not start from {options.output.init_from}: choose another --out")
    if model != options.model and not options.output.init_from:
        raise ValueError(f"{out} holds a run of another model, {model}: choose another --out")
    for name in _FIXED:
        now = getattr(options.data, name)
        if data[name] != now:
            raise ValueError(f"{out} holds a run with --{name.replace('_', '-')} {data[name]}, not {now}: choose another --out")
    batch = data["buckets_per_step"]
    if options.data.buckets_per_step not in (0, batch):
        raise ValueError(f"{out} holds a run of {batch} buckets a step, not {options.data.buckets_per_step}: choose another --out")
    output = replace(options.output, init_from=before["output"]["init_from"])
    return replace(options, model=model, data=replace(options.data, buckets_per_step=batch), output=output)


def _imported(options: TrainOptions, parallel: Parallel) -> tuple[TrainOptions, dict[str, Tensor]]:
    """Options with the shape of the Hugging Face model that is named, and its tensors: on rank 0, and empty ones of the meta device elsewhere."""
    found: list[dict[str, Tensor]] = []

    def shape() -> tuple[ModelOptions, dict[str, torch.Size]]:
        model, tensors = huggingface.load(options.output.init_from)
        found.append(tensors)
        return model, {name: tensor.shape for name, tensor in tensors.items()}

    model, shapes = _from_main(parallel, shape)
    tensors = found[0] if found else {name: torch.empty(size, device="meta") for name, size in shapes.items()}
    return replace(options, model=replace(model, gelu=options.model.gelu)), tensors


def _open(options: TrainOptions, parallel: Parallel, stack: ExitStack) -> tuple[ShardReader, ShardReader | None, TrainOptions]:
    """Readers of both splits (no second one if it is empty), and the options with the batch in buckets.

    Raises:
        ValueError: a batch that does not divide among ranks, or a dataset that the model cannot take.
    """
    data = options.data
    storage: dict[str, Any] = {"cache_bytes": data.cache_bytes, "cache_dir": data.cache_dir or None}
    with ShardReader(data.data, prefetch=0, **storage) as first:
        manifest = first.manifest
    if manifest.vocabulary != ESM2.name:
        raise ValueError(f"{data.data} has vocabulary {manifest.vocabulary}, this model knows {ESM2.name}")
    if manifest.length_multiple > 1:
        raise ValueError(f"{data.data} was built with --length-multiple {manifest.length_multiple}: tokens would attend to padding; build it without")
    _check_slices(options, manifest)
    slice_tokens = manifest.capacity // options.compute.context_parallel
    precision.check(options.compute, options.model, data=data.data, slice_tokens=slice_tokens, world_size=parallel.world_size)
    batch = _batch(data, manifest, parallel)
    ranks = {"rank": parallel.data_rank, "world_size": parallel.data_ranks, "buckets_per_step": batch}
    reader = stack.enter_context(ShardReader(data.data, seed=data.seed, prefetch=data.prefetch, **ranks, **storage))
    valid = None
    if "valid" in manifest.splits and manifest.splits["valid"].buckets:
        valid = stack.enter_context(ShardReader(data.data, split="valid", prefetch=0, **storage))
    return reader, valid, replace(options, data=replace(data, buckets_per_step=batch))


def _check_slices(options: TrainOptions, manifest: Manifest) -> None:
    """Raises: ValueError, if the dataset's buckets or the model's heads cannot be shared out as --context-parallel says."""
    ranks, heads = options.compute.context_parallel, options.model.heads
    if manifest.capacity % ranks:
        raise ValueError(
            f"{options.data.data} has buckets of {manifest.capacity} tokens, which --context-parallel {ranks} does not divide: "
            f"change it, or build the dataset with a --capacity that is a multiple of it"
        )
    if heads < ranks:
        raise ValueError(f"--context-parallel {ranks} shares out attention heads, and the model has {heads}: use at most that many")


def _batch(data: DataOptions, manifest: Manifest, parallel: Parallel) -> int:
    """Buckets of a step, over all ranks."""
    unit = parallel.data_ranks * data.buckets_per_micro_batch
    if not data.buckets_per_step:
        return max(1, round(data.tokens_per_step / manifest.capacity / unit)) * unit
    if data.buckets_per_step % unit:
        those = f"{parallel.data_ranks} ranks" if parallel.slices.ranks == 1 else f"{parallel.data_ranks} groups of {parallel.slices.ranks} ranks"
        raise ValueError(
            f"{data.buckets_per_step} buckets a step do not divide among {those} × {data.buckets_per_micro_batch} buckets a micro-batch: "
            f"change the number of ranks, --buckets-per-micro-batch or, for a new run, --buckets-per-step"
        )
    return data.buckets_per_step
