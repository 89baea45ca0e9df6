"""Messages that describe a run before its first step."""

from __future__ import annotations

import math

from schemas.models import FEW_EPOCHS, MOST_EPOCHS
from schemas.records import Status
from schemas.split_fractions import SplitFractions
from schemas.text.phrases import about, plural
from trainer.optimizer import learning_rate
from trainer.precision import low_layers
from trainer.readers.mixing import latest_announcement
from trainer.start.fit import cpu_memory_of, seconds_of
from trainer.start.starting_point import StartingPoint


def describe(run: StartingPoint) -> str:
    """Return one sentence about the run: first step, model, devices, batch, data and folder."""
    model, data, compute = run.options.model, run.options.data, run.options.compute
    capacity = run.manifest.capacity
    steps = run.options.optimizer.steps
    if run.is_finished:
        fewer = f", more than --steps {steps}" if run.step > steps else ""
        start = (
            f"nothing is left to train: the run has done {plural(run.step, 'step')}{fewer} (a "
            "larger --steps continues it)"
        )
    else:
        start = f"resuming from step {run.step:,} of {steps:,}" if run.step else "starting"
        if run.changes:
            start += f", changed from here: {run.changes}"
    memory = f", {run.memory} each" if run.memory else ""
    if run.readers.valid:
        split = run.options.output.valid_split
        of_split = "" if split == "valid" else f", of the {split} split"
        valid = f"{len(run.readers.valid):,} for validation{of_split}"
    else:
        valid = f"none for validation{_larger_split(run)}"
    return (
        f"{start}: {model.parameters / 1e6:,.1f} M parameters, backend {compute.backend}, "
        f"{_precision(run)}, {_arrangement(run)}{memory} · {_graph(run)}"
        f"{plural(data.buckets_per_step, 'bucket')} of {capacity:,} tokens per step, "
        f"{plural(run.micro_batches, 'micro-batch', 'es')} per rank{_merged(run)} · "
        f"{plural(run.epoch_buckets, 'bucket')} per epoch, {valid} · {run.options.output.out}"
    )


def _larger_split(run: StartingPoint) -> str:
    """Return a value of --split with which the largest dataset would have buckets for
    validation; "" if there is none."""
    largest = max(run.readers.manifests, key=lambda each: each.records_by_status[Status.KEPT])
    fractions = SplitFractions.parse(str(largest.options["split"]))
    larger = fractions.larger(
        run.options.output.valid_split, largest.records_by_status[Status.KEPT]
    )
    return f": thdpack preprocess {larger}" if larger else ""


def notes(run: StartingPoint) -> list[str]:
    """Return messages to print before the first step, such as the shares of a mixture, the number
    of steps, a batch that differs from the preset's, or a warning about too many epochs.
    """
    mixture = latest_announcement(run.options.data, run.step)
    found = [*run.readers.generations, *([mixture] if mixture else [])]
    found += [*run.notes, *_new_schedule(run), *_rate_of_pretraining(run)]
    if run.evaluations:
        sets = ", ".join(each.description() for each in run.evaluations)
        found.append(f"each validation also evaluates {sets}")
    buckets, epoch = run.options.data.buckets_per_step, run.epoch_buckets
    steps = run.options.optimizer.steps
    epochs = steps * buckets / epoch
    few = math.ceil(FEW_EPOCHS * epoch / buckets)
    if epochs > MOST_EPOCHS and few < steps:
        remedy = f"--steps {few} is {FEW_EPOCHS} epochs"
        if not run.options.output.init_from:
            remedy += ", and --init-from FOLDER starts from published weights"
        found.append(
            f"warning: {steps:,} steps are {epochs:,.0f} epochs of this dataset, which the model "
            f"will memorize: {remedy}"
        )
    return found


def _new_schedule(run: StartingPoint) -> list[str]:
    """Return a note if a resumed run has another number of steps, because the schedule of the
    learning rate then becomes longer or shorter.
    """
    optimizer, before = run.options.optimizer, run.before
    if before is None or run.is_finished or before.options.optimizer.steps == optimizer.steps:
        return []
    then = learning_rate(run.step - 1, before.options.optimizer)
    now = learning_rate(run.step, optimizer)
    return [
        f"the learning rate follows the schedule of {plural(optimizer.steps, 'step')} from here: "
        f"{now:.2e} in step {run.step + 1:,}, after {then:.2e} in step {run.step:,}"
    ]


def _rate_of_pretraining(run: StartingPoint) -> list[str]:
    """Return a note if a new run with --init-from has the preset's learning rate."""
    optimizer = run.options.optimizer
    if run.before or not run.options.output.init_from or optimizer.rate_given:
        return []
    rate = optimizer.learning_rate
    return [
        f"the learning rate is {rate:g}, as for training from random weights; fine-tuning usually "
        f"needs a smaller one, such as --learning-rate {rate / 10:g}"
    ]


def time_left(run: StartingPoint) -> str:
    """Return a sentence about the estimated time of the steps that are left. On a CPU, it is about
    memory.
    """
    if run.topology.device.type == "cpu":
        needed, available = cpu_memory_of(run.options, run.manifest, run.topology)
        return (
            f"memory: the run needs at least {needed / 2**30:,.1f} GiB of the "
            f"{available / 2**30:,.0f} GiB of this machine; time: a run estimates its time after "
            "the first steps"
        )
    steps = max(run.options.optimizer.steps - run.step, 0)
    step = seconds_of(run.options, run.manifest, run.topology)
    if math.isnan(step):
        return (
            "time and memory: not estimated for this device, backend and precision; a run "
            "estimates its time after the first steps"
        )
    return (
        f"{plural(steps, 'step')}: {about(steps * step)} by the estimate of `thdpack "
        "plan`, which was fitted to steps on H200s"
    )


def _precision(run: StartingPoint) -> str:
    low = low_layers(run.options.compute, run.options.model.layers)
    name = run.options.compute.precision
    return f"{name} in {sum(low)} of {len(low)} layers" if 0 < sum(low) < len(low) else name


def _graph(run: StartingPoint) -> str:
    if run.not_captured:
        return f"no CUDA graph, because {run.not_captured} · "
    return "CUDA graph · " if run.options.compute.cuda_graph == "on" else ""


def _merged(run: StartingPoint) -> str:
    number = run.options.data.buckets_per_micro_batch
    return f" of {number} buckets each" if number > 1 else ""


def _arrangement(run: StartingPoint) -> str:
    """Return the number of devices and the parallelism, in words."""
    topology = run.topology
    found = f"{topology.world_size} × {topology.device.type.upper()}"
    if topology.is_sharded:
        shards = topology.world_size // topology.replicate
        sharded = f"sharded over {shards}, gathered once per {run.options.compute.reshard}"
        if topology.replicate == 1:
            found += f", model {sharded}"
        else:
            found += f", {topology.replicate} replicas of the model"
            found += f", each {sharded}" if shards > 1 else ""
    if topology.is_replicated:
        found += ", each with the whole model"
        found += ", sharded optimizer state" if topology.shard == "optimizer" else ""
    if topology.slices.ranks > 1:
        found += f", {topology.slices.ranks} ranks per bucket"
    return found
