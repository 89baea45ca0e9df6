"""A training run: reader, model, optimizer, checkpoints. The training loop is in `train.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from trainer.checkpoints.checkpoint import CHECKPOINTS, Checkpoints
from trainer.checkpoints.run_state import BestValidation, RunState
from trainer.config import TrainOptions
from trainer.distributed.agreement import run_on_main
from trainer.distributed.fsdp import shard_parameters
from trainer.distributed.gradients import Gradients, ReplicatedGradients
from trainer.distributed.topology import Topology
from trainer.feed import Feed
from trainer.masking import Masker
from trainer.model.initialize import build, fill
from trainer.monitoring.layer_statistics import layer_statistics
from trainer.monitoring.run_log import RunLog, evaluation_kind
from trainer.optimizer import Optimizer
from trainer.precision import preserve_scaling
from trainer.readers.open_readers import Buckets
from trainer.scores.evaluation import Evaluation, evaluate
from trainer.start.starting_point import prepare
from trainer.step import Step
from trainer.validate import MASK_PROBABILITY, MASK_SEED, Validation, validate


class TrainingError(ThdpackError):
    """The loss or the gradients of a run are not finite: the run cannot continue, or its model is
    useless.
    """


class TrainingRun:
    """State of a run after `step` steps, and the objects that the next step needs.

    start: the starting point of the run, with its options.
    trained: the options that the model is trained with. If no step is left, they are those of the
        last checkpoint.
    best: the best validation so far.
    last_loss: loss of the last validation by this process; None before it.
    sound: False if the loss of the last validation was not finite.
    """

    def __init__(self, options: TrainOptions, topology: Topology, stack: ExitStack) -> None:
        """Start a run, or resume it from the last checkpoint in its folder.

        Args:
            stack: ExitStack that will close the run's files and readers.
        Raises:
            ValueError, ThdpackError: see `train`.
        """
        start = prepare(options, topology, stack)
        self.start = replace(start, initial={})  # a run does not keep the initial parameters
        self.options, self.topology, self.lock = start.options, start.topology, start.lock
        self.out = Path(options.output.out)
        self.reader, self.valid = start.readers.train, start.readers.valid
        self.manifest = start.readers.manifest

        # Created before the model: Transformer Engine's modules look up the debug configuration
        # when they are constructed.
        self.statistics = stack.enter_context(layer_statistics(self.options, self.topology))
        self._build_model(start.initial)
        self.step, self.tokens = 0, 0
        self.best, self.sound = BestValidation(), True
        self.last_loss: float | None = None
        self.checkpoints = Checkpoints(
            self.out / CHECKPOINTS, self.topology, self.lock, keep_last=options.output.keep_last
        )
        if start.before:
            self._load(start.before)
        self.checkpoints.set_aside_after(self.step)
        self.statistics.begin(self.model, self.step)
        finished = start.before if start.is_finished else None
        self.trained = finished.options if finished else self.options
        if self.topology.is_main:
            # options.json is for people: a resumed run reads the checkpoint instead.
            write(self.out / "options.json", self.trained.to_json())
        self._build_step()

    def _build_model(self, initial: Mapping[str, Tensor]) -> None:
        """Build model and optimizer.

        Args:
            initial: initial parameters by name. Parameters without an entry are drawn at random.
        """
        compute, topology = self.options.compute, self.topology
        self.model = build(self.options.model, compute, topology.slices)
        for parameter in self.model.parameters():
            parameter.data = parameter.data.to(precision.stored_dtype(compute))
        shard_parameters(
            self.model,
            topology,
            compute_dtype=precision.compute_dtype(compute),
            reshard=compute.reshard,
            gather_ahead=compute.gather_ahead,
        )
        masters = fill(self.model, initial, seed=self.options.data.seed, topology=topology)
        shards, parameters = topology.row_shards(), [p for _, p in self.model.named_weights()]
        gradients = (
            ReplicatedGradients(parameters, shards, micro_batches=self.micro_batches)
            if topology.is_replicated
            else Gradients(parameters, copies=topology.replicate)
        )
        self.optimizer = Optimizer(
            self.model, self.options.optimizer, masters, gradients=gradients, shards=shards
        )

    def _build_step(self) -> None:
        """Build the feed, the step, and the maskers of training and validation."""
        data, compute, topology = self.options.data, self.options.compute, self.topology
        masker = partial(Masker, ESM2, device=topology.device, slices=topology.slices)
        self.valid_masker = masker(
            seed=MASK_SEED, probability=MASK_PROBABILITY, epoch_buckets=max(len(self.valid), 1)
        )
        self.autocast = partial(
            precision.autocast, compute, topology.device, sharded=topology.is_sharded
        )
        self.feed = Feed(
            self.reader,
            buckets=data.buckets_per_micro_batch,
            stride=topology.data_ranks,
            device=topology.device,
        )
        train_masker = masker(
            seed=data.seed,
            probability=data.mask_probability,
            epoch_buckets=self.start.epoch_buckets,
        )
        self.step_once = Step(
            self.model,
            self.optimizer,
            train_masker,
            self.autocast,
            topology,
            micro_batches=self.micro_batches,
            reduced_once=compute.reshard == "step",
            captured=compute.cuda_graph == "on",
            backward_in_autocast=precision.backward_in_autocast(compute),
        )

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches of this rank in a step."""
        return self.start.micro_batches

    @property
    def tokens_per_micro_batch(self) -> float:
        """Average number of tokens that all ranks together compute while each computes one
        micro-batch."""
        train = self.manifest.splits["train"]
        buckets = self.options.data.buckets_per_micro_batch * self.topology.data_ranks
        return train.tokens / train.buckets * buckets

    @property
    def valid_split(self) -> str:
        """Split that validations read."""
        return self.options.output.valid_split

    def is_due(self, every: int) -> bool:
        return every > 0 and self.step % every == 0

    def validate(self, log: RunLog) -> bool:
        """Run the evaluations of --evaluate. Validate on the split of --valid-split, if the dataset
        has it. Return True if the loss is the lowest so far.
        """
        self._evaluate(self.start.evaluations, log)
        return self._validate_split(log)

    def _validate_split(self, log: RunLog) -> bool:
        """Validate, if the dataset has the split. Return True if the loss is the lowest so far."""
        if not self.valid:
            return False
        found = self._validated(self.valid, log)
        self.sound, self.last_loss = math.isfinite(found.loss), found.loss
        better = (
            self.sound
            and found.tokens > 0
            and (self.best.loss is None or found.loss < self.best.loss)
        )
        if better:
            self.best = BestValidation(loss=found.loss, checkpoint=Checkpoints.name(self.step))
        return better

    def validate_start(self, log: RunLog) -> None:
        """Validate the weights of --init-from before the first step. Later validations can then be
        compared with this one.
        """
        self._evaluate(self.start.evaluations, log)
        if self.valid:
            log.say(f"first, validating the weights of --init-from on the {self.valid_split} split")
            self._validated(self.valid, log)

    def validate_missing(self, log: RunLog) -> None:
        """Validate after the last step so far, if this is due and metrics.jsonl lacks the result,
        because a signal stopped the run before the validation, or because --valid-split has
        changed. The same holds for evaluations.
        """
        step, evaluations, split = self.step, self.start.evaluations, self.valid_split
        finished, before = self.start.is_finished, self.start.before
        if before is None or not (finished or self.is_due(self.options.output.validate_every)):
            return
        missing: list[bool] = run_on_main(
            self.topology,
            lambda: [not log.has_line(step, evaluation_kind(each.name)) for each in evaluations],
        )
        self._evaluate([each for each, due in zip(evaluations, missing, strict=True) if due], log)
        recorded = run_on_main(self.topology, lambda: log.has_validation(step, split))
        if not self.valid or not self.sound or recorded:
            return
        if before.options.output.valid_split == split:
            log.say(f"step {step:,} was not validated yet: validating on the {split} split")
            self._validate_split(log)
        elif finished:
            log.say(f"evaluating the finished run on the {split} split")
            # not compared with `best`, which is a validation on the split of the run
            self.sound = math.isfinite(self._validated(self.valid, log).loss)

    def _evaluate(self, evaluations: Sequence[Evaluation], log: RunLog) -> None:
        """Run evaluations (--evaluate), and log their results."""
        for each in evaluations:
            with self.statistics.paused(), preserve_scaling(self.model):
                found = evaluate(self.model, each, self.manifest, self.topology, self.autocast)
            log.evaluation(self.step, each.name, found)

    def _validated(self, valid: Buckets, log: RunLog) -> Validation:
        with self.statistics.paused(), preserve_scaling(self.model):
            found = validate(self.model, valid, self.valid_masker, self.topology, self.autocast)
        log.validation(self.step, found, self.valid_split)
        return found

    def save(self, *, wait: bool) -> None:
        """Begin to write a checkpoint. With `wait`, return only when the checkpoint is complete."""
        state = RunState(
            step=self.step,
            tokens=self.tokens,
            applied=int(self.optimizer.applied),
            best=self.best,
            sound=self.sound,
            reader=self.reader.state_dict(),
            manifests=tuple(each.digest for each in self.start.readers.manifests),
            options=self.options.public(),
        )
        self.checkpoints.save(state, {**self._tensors(), **self._optional_tensors()})
        if wait:
            self.checkpoints.wait()

    def _tensors(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint, fp32: `model.*`, `exp_avg.*`, `exp_avg_sq.*`."""
        return {
            **dict(self.optimizer.named_tensors()),
            **{f"model.{name}": buffer for name, buffer in self.model.named_buffers()},
        }

    def model_tensors(self) -> dict[str, Tensor]:
        """Return the tensors `model.*` of a checkpoint, fp32."""
        tensors = self._tensors().items()
        return {name: tensor for name, tensor in tensors if name.startswith("model.")}

    def _optional_tensors(self) -> dict[str, Tensor]:
        """Return FP8 scaling state and states of random number generators. A checkpoint that was
        written by another number of ranks or in another precision may lack some of these tensors.
        """
        tensors = {
            f"scaling.{name}": tensor for name, tensor in precision.scaling_tensors(self.model)
        }
        tensors[f"random.cpu.{self.topology.rank}"] = torch.get_rng_state()
        if self.topology.device.type == "cuda":
            tensors[f"random.cuda.{self.topology.rank}"] = torch.cuda.get_rng_state()
        return tensors

    def _load(self, state: RunState) -> None:
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
