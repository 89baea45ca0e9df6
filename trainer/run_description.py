"""One sentence that describes a run when it starts."""

from __future__ import annotations

from trainer.precision import low_layers
from trainer.run import TrainingRun


def describe(run: TrainingRun) -> str:
    """Return the start, model, devices, batch and data of a run, in one sentence."""
    model, data, compute = run.options.model, run.options.data, run.options.compute
    capacity = run.reader.manifest.capacity
    start = f"resuming from step {run.step:,}" if run.step else "starting"
    if run.changes:
        start += f", changed from here: {run.changes}"
    memory = f", {run.memory} each" if run.memory else ""
    if run.valid:
        valid = f"{len(run.valid):,} for validation"
    else:
        valid = "none for validation: --valid-fraction 0.01 of thdpack preprocess makes some"
    return (
        f"{start}: {model.parameters / 1e6:,.1f} M parameters, backend {compute.backend}, "
        f"{_precision(run)}, {_arrangement(run)}{memory} · {_graph(run)}"
        f"{data.buckets_per_step} buckets of {capacity:,} tokens a step, "
        f"{run.micro_batches} micro-batches a rank · "
        f"{len(run.reader):,} buckets an epoch, {valid} · {run.out}"
    )


def _precision(run: TrainingRun) -> str:
    low = low_layers(run.options.compute, run.options.model.layers)
    name = run.options.compute.precision
    return f"{name} in {sum(low)} of {len(low)} layers" if 0 < sum(low) < len(low) else name


def _graph(run: TrainingRun) -> str:
    if run.not_captured:
        return f"no CUDA graph, because {run.not_captured} · "
    return "CUDA graph · " if run.options.compute.cuda_graph else ""


def _arrangement(run: TrainingRun) -> str:
    """Return the number of devices, and how they share the work."""
    topology = run.topology
    found = f"{topology.world_size} × {topology.device.type.upper()}"
    if topology.world_size > 1:
        shards = topology.world_size // topology.replicate
        found += f", sharded over {shards}, gathered for a {run.options.compute.reshard}"
    if topology.slices.ranks > 1:
        found += f", {topology.slices.ranks} ranks per bucket"
    return found
