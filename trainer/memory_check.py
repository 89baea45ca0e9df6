"""Check that a run fits into the memory of its GPUs, before the run allocates memory. The check
uses the estimate of `thdpack plan`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from pipeline.planning.estimate import ROOM, Reshard, Setting, memory
from schemas.manifest import Manifest
from trainer.config import TrainOptions
from trainer.distributed.topology import Topology
from trainer.precision import is_low

_TOLERANCE = 1.02


def setting_of(options: TrainOptions, manifest: Manifest, topology: Topology) -> Setting:
    """Return the input of the memory estimate for a run. Its options must have `auto` resolved and
    the batch in buckets.
    """
    buckets, compute = options.data.buckets_per_micro_batch, options.compute
    return Setting.on(
        manifest,
        buckets,
        model=options.model,
        fp8=is_low(compute.precision),
        micro_batches=options.data.micro_batches(topology.data_ranks),
        recompute=compute.recompute,
        ranks=topology.world_size,
        shards=topology.world_size // topology.replicate,
        context_parallel=topology.slices.ranks,
        reshard="layer" if compute.reshard == "layer" else "step",
        captured=compute.cuda_graph,
    )


def check_memory(setting: Setting, *, available: float) -> str:
    """Return the estimated and the available memory of a GPU in words, "about 50 of 80 GiB".

    Args:
        available: memory of a GPU in bytes.
    Raises:
        ValueError: the run needs more than the available memory. The message names the largest
            part, and an option that reduces the need.
    """
    parts = memory(setting)
    total = sum(parts.values())
    if total <= _TOLERANCE * available:
        return f"about {total / 2**30:,.0f} of {available / 2**30:,.0f} GiB"
    part, size = max(parts.items(), key=lambda item: item[1])
    changes = {
        "--reshard layer": replace(setting, reshard="layer"),
        "--recompute selective": replace(setting, recompute="selective"),
        "--recompute full": replace(setting, recompute="full"),
    }
    fitting = [
        flag for flag, other in changes.items() if sum(memory(other).values()) <= ROOM * available
    ]
    more = (
        "more GPUs (with --replicate, more GPUs per replica), fewer "
        "--buckets-per-micro-batch, or a dataset built with a smaller --capacity"
    )
    remedy = fitting[0] if fitting else more
    raise ValueError(
        f"this run needs about {total / 2**30:,.0f} GiB of memory per GPU, "
        f"but a GPU has {available / 2**30:,.0f} GiB. "
        f"The largest part is {size / 2**30:,.0f} GiB for {part}: use {remedy}. "
        "`thdpack plan` shows which options fit"
    )


def resolve_reshard(setting: Setting, *, available: float) -> Reshard:
    """Resolve `--reshard auto`. Return "step" if the whole run then fits, and the gathered
    parameters and gradients need at most a quarter of the memory. Otherwise return "layer".
    """
    held = replace(setting, reshard="step")
    gathered = memory(held)["gathered parameters and gradients"]
    return (
        "step"
        if 4 * gathered <= available and sum(memory(held).values()) <= ROOM * available
        else "layer"
    )


def memory_of(options: TrainOptions, manifest: Manifest, topology: Topology) -> str:
    """Return the result of `check_memory` on this machine. Return "" on a CPU, for backend torch
    and for fp32, because the estimate was never measured for them.
    """
    if (
        topology.device.type != "cuda"
        or options.compute.backend != "te"
        or options.compute.precision == "fp32"
    ):
        return ""
    return check_memory(
        setting_of(options, manifest, topology), available=available_memory(topology.device)
    )


def available_memory(device: torch.device) -> float:
    """Return the device's memory in bytes; infinite on a CPU."""
    return (
        float(torch.cuda.get_device_properties(device).total_memory)
        if device.type == "cuda"
        else math.inf
    )
