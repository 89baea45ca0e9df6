"""Check that a run fits into the memory of its GPUs, before anything is allocated. Uses the
estimate of `thdpack plan`.
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
    """Return the setting to estimate for a run whose options are resolved: without `auto`, and with
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
    """Return a sentence about how much of a GPU's memory a run will take.

    Args:
        available: bytes.
    Raises:
        ValueError: the run needs more than is available. The message names the largest part, and
            what makes it smaller.
    """
    parts = memory(setting)
    total = sum(parts.values())
    sizes = f"about {total / 2**30:,.0f} of {available / 2**30:,.0f} GiB"
    if total <= _TOLERANCE * available:
        return sizes
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
        "more GPUs (with --replicate, more of them for each copy), fewer "
        "--buckets-per-micro-batch, or a dataset of smaller --capacity"
    )
    remedy = fitting[0] if fitting else more
    raise ValueError(
        f"this run needs {sizes} a GPU, {size / 2**30:,.0f} of them for {part}: use {remedy}. "
        "`thdpack plan` shows what fits"
    )


def resolve_reshard(setting: Setting, *, available: float) -> Reshard:
    """Return the meaning of `--reshard auto`: step, if that takes at most a quarter of the memory
    and everything fits.
    """
    held = replace(setting, reshard="step")
    gathered = memory(held)["gathered parameters and gradients"]
    return (
        "step"
        if 4 * gathered <= available and sum(memory(held).values()) <= ROOM * available
        else "layer"
    )


def memory_of(options: TrainOptions, manifest: Manifest, topology: Topology) -> str:
    """Return `check_memory` for this machine; "" on a CPU and for backend torch, whose memory was
    never measured.
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
