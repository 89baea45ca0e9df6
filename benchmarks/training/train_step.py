"""Measure the speed of the training step on this machine's GPU.

    python -m benchmarks.training.train_step DATASET --presets esm2-650m \\
        --precisions bf16 fp8-delayed

Each line of the output is one setting. The benchmark times the trainer's own step (masking,
forward, backward, clipping, update of the fp32 master weights) after a warm-up. Blocks of steps on
rows from the reader ("real") alternate with blocks of steps on one row that stays on the device
("resident"). With several ranks, all blocks are real, and ratio is 1. CUDA events time all blocks,
and results are medians over blocks. Columns of the output:

- ms/step, resident: time of a step in real blocks and in resident blocks, in ms.
- ratio: time of a real block divided by the time of a resident block.
- tokens/s: unpadded tokens per second and GPU.
- data wait: share of the real blocks' time in which the device may have waited for a row.
- on rows: share of the real blocks' time in which the host read rows and copied them into pinned
  memory, mostly while the device computed.
- host ms: time that the host needs to launch a step, in ms.
- GiB, estimate: measured peak of allocated memory, and the estimate of `thdpack plan`.

`--json` also writes the results to a file. If a step cannot be captured in a CUDA graph, the
column `graph` has "no", and standard error has the reason.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.training.ablation.steps import forget
from pipeline.planning.estimate import memory
from trainer.config import AUTO, PRESETS, TrainOptions
from trainer.distributed.agreement import run_on_main
from trainer.distributed.topology import Topology, process_group
from trainer.feed import Row
from trainer.monitoring.flops import model_flops, peak_flops
from trainer.run import TrainingRun
from trainer.start.fit import setting_of
from trainer.train import train_step

RATE = 1e-5


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("--presets", nargs="+", default=["esm2-650m"], choices=list(PRESETS))
    parser.add_argument("--precisions", nargs="+", default=["bf16"])
    parser.add_argument("--gelus", nargs="+", default=["erf"], choices=["erf", "tanh"])
    parser.add_argument(
        "--cuda-graphs",
        nargs="+",
        default=["auto"],
        choices=["auto", "on", "off"],
        help="values for --cuda-graph",
    )
    parser.add_argument(
        "--optimizers", nargs="+", default=["adamw"], choices=["adamw", "muon"], help="optimizers"
    )
    parser.add_argument("--backend", default="te")
    parser.add_argument(
        "--buckets",
        type=int,
        nargs="+",
        default=[1],
        help="number of buckets in a micro-batch; with 0, the trainer chooses it",
    )
    parser.add_argument(
        "--micro-batches",
        type=int,
        default=1,
        help="number of micro-batches per step on each rank (or group of ranks that share buckets)",
    )
    parser.add_argument(
        "--buckets-per-step",
        type=int,
        default=0,
        help="number of buckets per step over all ranks, instead of --micro-batches; the "
        "published batch is 128 buckets of 16,384 tokens",
    )
    parser.add_argument("--shards", nargs="+", default=["auto"], help="values for --shard")
    parser.add_argument("--reshard", default="auto")
    parser.add_argument("--gather-ahead", type=int, default=1)
    parser.add_argument("--replicate", type=int, default=1)
    parser.add_argument("--context-parallel", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=5, help="number of timed blocks of each kind")
    parser.add_argument("--steps", type=int, default=10, help="number of steps in a block")
    parser.add_argument("--recompute", default="none")
    parser.add_argument("--profile", default="", help="file for a table of device time by kernel")
    parser.add_argument("--json", default="", help="file for the results")
    return parser.parse_args()


@dataclass(frozen=True)
class Setting:
    """Options that differ between the lines of the output."""

    preset: str
    precision: str
    gelu: Any
    graph: Any
    optimizer: Any
    buckets: int
    shard: Any


def options_of(arguments: argparse.Namespace, setting: Setting, world_size: int) -> TrainOptions:
    """Return the trainer's options for one setting, without an output folder."""
    data_ranks = world_size // arguments.context_parallel
    micro_batch = setting.buckets or 1
    step = arguments.buckets_per_step or micro_batch * arguments.micro_batches * data_ranks
    options = PRESETS[setting.preset][1]
    return replace(
        options,
        model=replace(options.model, gelu=setting.gelu),
        data=replace(
            options.data,
            data=(arguments.dataset,),
            buckets_per_step=step,
            buckets_per_micro_batch=setting.buckets or AUTO,
        ),
        optimizer=replace(options.optimizer, optimizer=setting.optimizer),
        compute=replace(
            options.compute,
            backend=arguments.backend,
            precision=setting.precision,
            recompute=arguments.recompute,
            cuda_graph=setting.graph,
            shard=setting.shard,
            reshard=arguments.reshard,
            gather_ahead=arguments.gather_ahead,
            replicate=arguments.replicate,
            context_parallel=arguments.context_parallel,
        ),
    )


def main() -> None:
    arguments = parsed()
    rows = []
    with process_group() as topology:
        say = print if topology.is_main else lambda *_, **__: None
        say(
            "preset      precision    gelu  graph  optimizer  shard     buckets  ms/step  "
            "resident   ratio  tokens/s   MFU  data wait  on rows  host ms  GiB  estimate",
            flush=True,
        )
        for setting in itertools.starmap(
            Setting,
            itertools.product(
                arguments.presets,
                arguments.precisions,
                arguments.gelus,
                arguments.cuda_graphs,
                arguments.optimizers,
                arguments.buckets,
                arguments.shards,
            ),
        ):
            row = timed(arguments, setting, topology)
            rows.append(row)
            say(
                f"{setting.preset:11} {setting.precision:12} {setting.gelu:5} "
                f"{'yes' if row['cuda_graph'] else 'no':5} {setting.optimizer:9}  "
                f"{row['shard']:9} {row['buckets']:7} {row['ms']:8.1f}   "
                f"{row['resident_ms']:7.1f}  {row['ratio']:6.4f}  "
                f"{row['tokens_per_second']:8,.0f}  {row['mfu']:4.1%}    {row['data_wait']:6.3%}  "
                f"{row['data_host']:6.3%}  {row['host_ms']:6.1f}  {row['gib']:5.1f}  "
                f"{row['estimated_gib']:5.1f}",
                flush=True,
            )
            forget(topology.device)
    if arguments.json and topology.is_main:
        Path(arguments.json).write_text(
            json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=1)
        )


def timed(arguments: argparse.Namespace, setting: Setting, topology: Topology) -> dict[str, Any]:
    """Measure one setting. Return the results, and the options with `auto` resolved."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        options = options_of(arguments, setting, topology.world_size)
        output = replace(options.output, out=run_on_main(topology, lambda: folder))
        run = TrainingRun(replace(options, output=output), topology, stack)
        if run.start.not_captured and topology.is_main:
            print(
                f"{setting.preset} {setting.precision}: no CUDA graph, because "
                f"{run.start.not_captured}",
                file=sys.stderr,
                flush=True,
            )
        found = measured(
            run, blocks=arguments.blocks, steps=arguments.steps, profile=arguments.profile
        )
        estimate = memory(setting_of(run.options, run.manifest, run.topology))
        compute = run.options.compute
        return {
            "preset": setting.preset,
            "precision": setting.precision,
            "gelu": setting.gelu,
            "optimizer": setting.optimizer,
            "cuda_graph": compute.cuda_graph == "on",
            "shard": compute.shard,
            "buckets": run.options.data.buckets_per_micro_batch,
            "micro_batches": run.micro_batches,
            "recompute": compute.recompute,
            "gather_ahead": compute.gather_ahead,
            "replicate": compute.replicate,
            "context_parallel": compute.context_parallel,
            "ranks": topology.world_size,
            "reshard": compute.reshard if run.topology.is_sharded else "",
            "estimated_gib": sum(estimate.values()) / 2**30,
            **found,
        }


def measured(run: TrainingRun, *, blocks: int, steps: int, profile: str) -> dict[str, Any]:
    """Time blocks of steps; return medians over the blocks. tokens/s are per device."""
    alone = run.topology.world_size == 1
    resident = itertools.repeat(next(run.feed))
    for rows in (run.feed, resident) if alone else (run.feed,):
        block(run, rows, steps)
    real, still, tokens, squares, predicted, host = [], [], 0.0, 0.0, 0.0, []
    waited, spent = run.feed.waited, run.feed.spent
    for _ in range(blocks):
        seconds, counts, launched = block(run, run.feed, steps)
        real.append(seconds)
        predicted, tokens, squares = predicted + counts[0], tokens + counts[2], squares + counts[3]
        if alone:
            seconds, _, launched = block(run, resident, steps)
        still.append(seconds)
        host.append(launched)
    waited, spent = run.feed.waited - waited, run.feed.spent - spent
    if profile:
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
        ) as trace:
            block(run, run.feed, 3)
        Path(profile).write_text(
            trace.key_averages().table(
                sort_by="cuda_time_total", row_limit=60, max_name_column_width=110
            )
        )
    total = sum(real)
    flops = model_flops(run.options.model, tokens=tokens, squares=squares, predicted=predicted)
    devices = run.topology.world_size
    peak = peak_flops(run.options, run.topology.device) * devices
    median = statistics.median(real)
    return {
        "ms": 1e3 * median / steps,
        "resident_ms": 1e3 * statistics.median(still) / steps,
        "ratio": statistics.median(a / b for a, b in zip(real, still, strict=True)),
        "tokens_per_second": tokens / blocks / median / devices,
        "mfu": flops / total / peak if peak else 0.0,
        "data_wait": waited / total,
        "data_host": spent / total,
        "host_ms": 1e3 * statistics.median(host) / steps,
        "gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def block(run: TrainingRun, rows: Iterator[Row], steps: int) -> tuple[float, list[float], float]:
    """Run a block of steps.

    Returns:
        device time of the block, in seconds
        the four counts that `train_step` returns, summed over the block
        time that the host needed to launch the block, in seconds
    """
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    started = time.perf_counter()
    begin.record()
    sums = torch.zeros(4, dtype=torch.float64, device=run.topology.device)
    for _ in range(steps):
        sums += train_step(run, rows, RATE)[1]
    end.record()
    launched = time.perf_counter() - started
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3, sums.tolist(), launched


if __name__ == "__main__":
    main()
