"""What a run consists of, put together as it was left: reader, model, optimizer, checkpoints. `train.py` steps it."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from schemas.errors import ThdpackError
from schemas.vocabulary import ESM2
from trainer import precision
from trainer.checkpoints.atomic_write import write
from trainer.checkpoints.checkpoint import CHECKPOINTS, KEPT, LATEST, Checkpoints
from trainer.checkpoints.run_lock import run_lock
from trainer.checkpoints.run_state import BestValidation, RunState
from trainer.config import TrainOptions
from trainer.distributed.agreement import all_gather, check_same, options_of, run_on_main, versions
from trainer.distributed.topology import Topology, full_tensor
from trainer.feed import Feed
from trainer.masking import Masker
from trainer.memory_check import available_memory, memory_of, resolve_reshard, setting_of
from trainer.model import huggingface
from trainer.model.initialize import build, fill
from trainer.monitoring.layer_statistics import layer_statistics
from trainer.monitoring.run_log import RunLog
from trainer.open_readers import open_readers
from trainer.optimizer import Optimizer
from trainer.precision import preserve_scaling
from trainer.resume_options import changes, resumed
from trainer.starting_point import from_hugging_face, last_state
from trainer.step import Step, why_not_captured
from trainer.validate import MASK_SEED, validate


class TrainingError(ThdpackError):
    """A run cannot go on, or did not come to an end that is worth something: its loss or gradients are not finite."""


class TrainingRun:
    """A run at a step: the number of steps done, `step`, and everything that the next one needs."""

    def __init__(self, options: TrainOptions, topology: Topology, stack: ExitStack) -> None:
        """Start, or go on from the last checkpoint in the run's folder.

        Args:
            stack: closes what has to be closed.
        Raises:
            ValueError, ThdpackError: as `train` says.
        """
        check_same(
            topology, {**versions(), **options_of(options)}
        )  # before anything that ranks do together
        topology = topology.for_options(options.compute)
        self.topology, self.out = topology, Path(options.output.out)
        options = replace(options, compute=precision.resolve(options.compute, topology.device))
        self.lock = stack.enter_context(run_lock(self.out, topology))
        before = last_state(options, topology)
        imported: dict[str, Tensor] = {}
        if before:
            options = resumed(options, before.options)
        elif options.output.init_from:
            options, imported = from_hugging_face(options, topology)
        self.reader, self.valid, options = open_readers(options, topology, stack)
        compute = options.compute
        if compute.reshard == "auto":
            setting, smallest = (
                setting_of(options, self.reader.manifest, topology),
                min(all_gather(topology, available_memory(topology.device))),
            )
            compute = replace(
                compute,
                reshard=run_on_main(topology, lambda: resolve_reshard(setting, available=smallest)),
            )
        self.options = options = replace(options, compute=compute)
        check_same(
            topology, options_of(options)
        )  # `auto` may stand for something else where hardware or packages differ
        self.changes = changes(options, before.options) if before else ""
        self.memory = memory_of(options, self.reader.manifest, topology)

        self.statistics = stack.enter_context(
            layer_statistics(options, topology)
        )  # before the model: Transformer Engine's modules look for it as they are made
        self.model = build(options.model, compute, topology.slices)
        for parameter in self.model.parameters():
            parameter.data = parameter.data.to(precision.stored_dtype(compute))
        topology.shard(
            self.model,
            compute_dtype=precision.compute_dtype(compute),
            reshard=compute.reshard,
            gather_ahead=compute.gather_ahead,
        )
        masters = fill(self.model, imported, seed=options.data.seed, topology=topology)
        self.optimizer = Optimizer(self.model, options.optimizer, masters)
        self.autocast = partial(
            precision.autocast, compute, topology.device, sharded=topology.world_size > 1
        )
        masker = partial(
            Masker,
            ESM2,
            probability=options.data.mask_probability,
            device=topology.device,
            slices=topology.slices,
        )
        self.valid_masker = masker(
            seed=MASK_SEED, epoch_buckets=len(self.valid) if self.valid else 1
        )

        self.step, self.tokens = 0, 0
        self.best, self.sound = BestValidation(), True
        self.checkpoints = Checkpoints(
            self.out / CHECKPOINTS, topology, self.lock, keep_last=options.output.keep_last
        )
        if before:
            self._load(before)
        self.checkpoints.set_aside_after(self.step)
        self.statistics.begin(self.model, self.step)
        if topology.is_main:
            write(
                self.out / "options.json", options.to_json()
            )  # for people; what a run goes on with is in its checkpoints
        self.feed = Feed(
            self.reader,
            buckets=options.data.buckets_per_micro_batch,
            stride=topology.data_ranks,
            device=topology.device,
        )
        self.not_captured = (
            why_not_captured(compute, topology, self.micro_batches) if compute.cuda_graph else ""
        )
        captured = compute.cuda_graph and not self.not_captured
        self.step_once = Step(
            self.model, self.optimizer, masker(seed=options.data.seed, epoch_buckets=len(self.reader)), self.autocast, topology,
            micro_batches=self.micro_batches, reduced_once=compute.reshard == "step", captured=captured,
            backward_in_autocast=precision.backward_in_autocast(compute),
        )  # fmt: skip

    @property
    def micro_batches(self) -> int:
        """Of this rank, in a step."""
        return self.options.data.micro_batches(self.topology.data_ranks)

    def is_due(self, every: int) -> bool:
        return every > 0 and self.step % every == 0

    def validate(self, report: RunLog) -> bool:
        """Measure on the valid split, if there is one. Whether this is the best so far."""
        if self.valid is None:
            return False
        with self.statistics.paused(), preserve_scaling(self.model):
            found = validate(
                self.model, self.valid, self.valid_masker, self.topology, self.autocast
            )
        report.validation(self.step, found)
        self.sound = math.isfinite(found.loss)
        better = (
            self.sound
            and found.tokens > 0
            and (self.best.loss is None or found.loss < self.best.loss)
        )
        if better:
            self.best = BestValidation(loss=found.loss, checkpoint=Checkpoints.name(self.step))
        return better

    def save(self, *, wait: bool) -> None:
        """Begin to write a checkpoint, or write it, if `wait`."""
        state = RunState(
            step=self.step,
            tokens=self.tokens,
            applied=int(self.optimizer.applied),
            best=self.best,
            sound=self.sound,
            reader=self.reader.state_dict(),
            options=self.options.public(),
        )
        self.checkpoints.save(state, {**self._tensors(), **self._optional_tensors()})
        if wait:
            self.checkpoints.wait()

    def export(self) -> None:
        """Write OUT/export, which plain transformers loads.

        Raises:
            TrainingError: the last validation was not finite.
        """
        if not self.sound:
            best, latest = self.best.checkpoint, self.out / CHECKPOINTS / LATEST
            back = f"go back to an earlier checkpoint ({best} had the best validation) by writing its name into {latest}"
            raise TrainingError(
                f"the last validation, up to step {self.step:,}, has a loss that is not finite: the run is not done and exports nothing. "
                f"Its metrics say since when; {back if best else 'no validation was finite: begin again in another --out'}, "
                f"with a lower --learning-rate or with --precision bf16{f'. {KEPT}' if best else ''}"
            )
        tensors = {}
        for name, tensor in self._tensors().items():
            kind, _, name = name.partition(".")
            if kind == "model":
                together = full_tensor(tensor)  # of all ranks, one tensor at a time
                if self.topology.is_main:
                    tensors[name] = together.cpu()
        if self.topology.is_main:
            self.lock.check()
            huggingface.export(
                self.out / "export",
                tensors,
                self.options.model,
                max_seq_len=self.reader.manifest.max_seq_len,
            )

    @property
    def description(self) -> str:
        model, data, compute, manifest = (
            self.options.model,
            self.options.data,
            self.options.compute,
            self.reader.manifest,
        )
        where_to = _arrangement(self.options, self.topology) + (
            f", {self.memory} each" if self.memory else ""
        )
        where = f"going on from step {self.step:,}" if self.step else "starting"
        where += f", changed from here: {self.changes}" if self.changes else ""
        low = precision.low_layers(compute, model.layers)
        numbers = (
            f"{compute.precision} in {sum(low)} of {len(low)} layers"
            if 0 < sum(low) < len(low)
            else compute.precision
        )
        graph = (
            f"no CUDA graph, for {self.not_captured} · "
            if self.not_captured
            else "CUDA graph · "
            if compute.cuda_graph
            else ""
        )
        valid = (
            f"{len(self.valid):,} for validation"
            if self.valid
            else "none for validation: --valid-fraction 0.01 of thdpack preprocess makes some"
        )
        return (
            f"{where}: {model.parameters / 1e6:,.1f} M parameters, backend {compute.backend}, {numbers}, {where_to} · {graph}"
            f"{data.buckets_per_step} buckets of {manifest.capacity:,} tokens a step, {self.micro_batches} micro-batches a rank · "
            f"{len(self.reader):,} buckets an epoch, {valid} · {self.out}"
        )

    def _tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds, fp32: `model.*`, `exp_avg.*`, `exp_avg_sq.*`."""
        return {
            **dict(self.optimizer.named_tensors()),
            **{f"model.{name}": buffer for name, buffer in self.model.named_buffers()},
        }

    def _optional_tensors(self) -> dict[str, Tensor]:
        """What another number of ranks or another precision does without: scaling state and random number generators."""
        tensors = {
            f"scaling.{name}": tensor for name, tensor in precision.scaling_tensors(self.model)
        }
        tensors[f"random.cpu.{self.topology.rank}"] = torch.get_rng_state()
        if self.topology.device.type == "cuda":
            tensors[f"random.cuda.{self.topology.rank}"] = torch.cuda.get_rng_state()
        return tensors

    def _load(self, state: RunState) -> None:
        self.reader.load_state_dict(state.reader)
        precision.prepare_scaling(self.model, self.options.compute)
        optional = self._optional_tensors()
        self.checkpoints.load(Checkpoints.name(state.step), self._tensors(), optional=optional)
        self.optimizer.restored(state.applied)
        torch.set_rng_state(optional[f"random.cpu.{self.topology.rank}"])
        if self.topology.device.type == "cuda":
            torch.cuda.set_rng_state(optional[f"random.cuda.{self.topology.rank}"])
        self.step, self.tokens, self.best, self.sound = (
            state.step,
            state.tokens,
            state.best,
            state.sound,
        )


def _arrangement(options: TrainOptions, topology: Topology) -> str:
    """How many devices, and how they share the work."""
    found = f"{topology.world_size} × {topology.device.type.upper()}"
    if topology.world_size > 1:
        found += f", sharded over {topology.world_size // topology.replicate}, gathered for a {options.compute.reshard}"
    if topology.slices.ranks > 1:
        found += f", {topology.slices.ranks} to a bucket"
    return found
