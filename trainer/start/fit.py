"""Fit a run to its GPUs before it allocates memory: choose the options that are `auto`, and check
that the run fits into memory. The choice and the check use the estimate of `thdpack plan`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from pipeline.executors.cgroup_limits import machine_memory
from pipeline.planning.choices import choose_buckets, choose_reshard, choose_shard
from pipeline.planning.estimate import ROOM, Setting, Shard, memory, seconds
from schemas.manifest import Manifest
from schemas.models import longest_of_our_attention
from trainer.config import AUTO, ComputeOptions, TrainOptions
from trainer.distributed.agreement import all_gather
from trainer.distributed.topology import Topology
from trainer.precision import is_low
from trainer.start.cpu_memory import check_cpu_memory, ranks_on_this_machine
from trainer.step import why_not_captured

_TOLERANCE = 1.02


def setting_of(options: TrainOptions, manifest: Manifest, topology: Topology) -> Setting:
    """Return the input of the memory estimate for a run. In `options`, `auto` must be resolved, and
    `buckets_per_step` must be set.
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
        shard=topology.shard,
        shards=topology.world_size // topology.replicate,
        context_parallel=topology.slices.ranks,
        reshard="layer" if compute.reshard == "layer" else "step",
        captured=compute.cuda_graph == "on",
    )


def check_memory(setting: Setting, *, available: float) -> str:
    """Return the estimated and the available memory of a GPU, such as "about 50 of 80 GiB".

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
        "--shard full": replace(setting, shard="full", shards=setting.ranks, reshard="layer"),
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


def fitted(
    options: TrainOptions, manifest: Manifest, topology: Topology
) -> tuple[TrainOptions, Topology, str]:
    """Resolve `auto` of --shard, --reshard, --buckets-per-micro-batch and --cuda-graph. All ranks
    must call this. All ranks make the same choices.

    Args:
        options: options with backend and precision resolved, and `buckets_per_step` set.
    Returns:
        Options and topology with these choices.
        Reason why the step is not captured in a CUDA graph, if --cuda-graph is auto and there is a
            GPU; "" otherwise.
    Raises:
        ValueError: options contradict each other, or --cuda-graph on is impossible.
    """
    available = min(all_gather(topology, available_memory(topology.device)))
    compute, asked = options.compute, options.data.buckets_per_micro_batch
    if asked == AUTO:
        options = replace(options, data=replace(options.data, buckets_per_micro_batch=1))

    def setting() -> Setting:
        return setting_of(replace(options, compute=compute), manifest, topology)

    shard = _shard(compute, topology, setting(), available)
    compute, topology = replace(compute, shard=shard), replace(topology, shard=shard)
    _check_shard(compute, topology)
    if topology.is_sharded and compute.reshard == "auto":
        compute = replace(compute, reshard=choose_reshard(setting(), available=available))
    if asked == AUTO and _is_measured(compute, topology):
        reason = _why_not_captured(options, compute, manifest, topology)
        captured = replace(setting(), captured=compute.cuda_graph != "off" and not reason)
        number = choose_buckets(captured, available=available)
        options = replace(options, data=replace(options.data, buckets_per_micro_batch=number))
    reason = _why_not_captured(options, compute, manifest, topology)
    if compute.cuda_graph == "on" and reason:
        raise ValueError(f"--cuda-graph on is impossible: {reason}. Use --cuda-graph auto")
    is_auto = compute.cuda_graph == "auto"
    if is_auto:
        compute = replace(compute, cuda_graph="off" if reason else "on")
    said = reason if is_auto and topology.device.type == "cuda" else ""
    return replace(options, compute=compute), topology, said


def _shard(
    compute: ComputeOptions, topology: Topology, setting: Setting, available: float
) -> Shard:
    if compute.shard != "auto":
        return compute.shard
    if topology.world_size == 1:
        return "none"
    asks_for_full = compute.replicate > 1 or compute.reshard != "auto" or topology.slices.ranks > 1
    return "full" if asks_for_full else choose_shard(setting, available=available)


def _check_shard(compute: ComputeOptions, topology: Topology) -> None:
    """Check that other options are compatible with --shard.

    Raises:
        ValueError: an option has no effect or cannot work.
    """
    if topology.world_size == 1:
        return  # one GPU ignores these options, so that a command for many GPUs runs there too
    if compute.quantized_init and compute.shard != "none":
        raise ValueError(
            "--quantized-init works only if each rank holds the whole model, but --shard is "
            f"{compute.shard}: remove --quantized-init, or use --shard none"
        )
    if compute.shard == "full":
        return
    for option, given in (
        ("--replicate", compute.replicate > 1),
        ("--reshard", compute.reshard != "auto"),
    ):
        if given:
            raise ValueError(
                f"{option} is for sharded parameters, but --shard is {compute.shard}: remove "
                f"{option}, or use --shard full"
            )


def _why_not_captured(
    options: TrainOptions, compute: ComputeOptions, manifest: Manifest, topology: Topology
) -> str:
    longest = longest_of_our_attention(options.model.head_size)
    if manifest.max_seq_len > longest:
        return (
            f"sequences may have {manifest.max_seq_len:,} tokens, and above {longest:,} tokens the "
            "layers use another attention kernel, whose capture was never tested"
        )
    if options.output.tensor_statistics:
        return "a graph replays kernels without computing --tensor-statistics"
    return why_not_captured(compute, topology, options.data.micro_batches(topology.data_ranks))


def _is_measured(compute: ComputeOptions, topology: Topology) -> bool:
    """Return True if the estimates of memory and time are based on measured runs with this kind of
    device, backend and precision.
    """
    return (
        topology.device.type == "cuda" and compute.backend == "te" and compute.precision != "fp32"
    )


def memory_of(options: TrainOptions, manifest: Manifest, topology: Topology) -> str:
    """Return the result of `check_memory` on this machine. Return "" on a CPU, for backend torch
    and for fp32, because no such run was measured for the estimate.

    Raises:
        ValueError: the run needs more than the available memory.
    """
    if topology.device.type == "cpu":
        cpu_memory_of(options, manifest, topology)
    if not _is_measured(options.compute, topology):
        return ""
    return check_memory(
        setting_of(options, manifest, topology), available=available_memory(topology.device)
    )


def cpu_memory_of(
    options: TrainOptions, manifest: Manifest, topology: Topology
) -> tuple[float, int]:
    """Return the least number of bytes that the ranks on this machine need on its CPU, and the
    memory of the machine in bytes.

    Raises:
        ValueError: the memory is too small.
    """
    available = machine_memory()
    needed = check_cpu_memory(
        setting_of(options, manifest, topology),
        precision=options.compute.precision,
        ranks=ranks_on_this_machine(),
        available=available,
    )
    return needed, available


def seconds_of(options: TrainOptions, manifest: Manifest, topology: Topology) -> float:
    """Return the estimated time of a step in seconds; NaN on a CPU, for backend torch and for
    fp32.
    """
    if not _is_measured(options.compute, topology):
        return math.nan
    return seconds(setting_of(options, manifest, topology))


def available_memory(device: torch.device) -> float:
    """Return the device's memory in bytes; infinite on a CPU."""
    return (
        float(torch.cuda.get_device_properties(device).total_memory)
        if device.type == "cuda"
        else math.inf
    )
