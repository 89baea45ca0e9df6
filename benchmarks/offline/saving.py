"""Measure by how many seconds a checkpoint delays training.

    torchrun --nproc-per-node 4 -m benchmarks.offline.saving DATASET --preset esm2-650m

Blocks of steps with a checkpoint alternate with blocks without one. A block with a checkpoint
begins with the call that saves, and ends when the checkpoint is published and all steps are done.
All ranks begin a block together. Times are wall-clock times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.training.train_step import RATE, shared
from trainer.config import PRESETS
from trainer.distributed.topology import process_group
from trainer.run import TrainingRun
from trainer.train import train_step


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("--preset", default="esm2-650m", choices=list(PRESETS))
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--buckets", type=int, default=4, help="number of buckets in a micro-batch")
    parser.add_argument("--micro-batches", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8, help="number of steps in a block")
    parser.add_argument("--blocks", type=int, default=3, help="number of blocks of each kind")
    parser.add_argument(
        "--interval",
        type=int,
        default=500,
        help="assumed number of steps between checkpoints, to compute the share of time that "
        "checkpoints take",
    )
    parser.add_argument(
        "--out",
        default="",
        help="folder for checkpoints, on storage that all ranks share; default: a temporary folder",
    )
    parser.add_argument("--json", default="", help="file for the result")
    arguments = parser.parse_args()
    with process_group() as topology, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        options = PRESETS[arguments.preset][1]
        step = arguments.buckets * arguments.micro_batches * topology.world_size
        options = replace(
            options,
            data=replace(
                options.data,
                data=(arguments.dataset,),
                buckets_per_step=step,
                buckets_per_micro_batch=arguments.buckets,
            ),
            compute=replace(options.compute, precision=arguments.precision),
            output=replace(
                options.output, out=arguments.out or shared(folder, topology), keep_last=1
            ),
        )
        run = TrainingRun(options, topology, stack)
        block(run, arguments.steps, save=True)
        plain, saving = [], []
        for _ in range(arguments.blocks):
            plain.append(block(run, arguments.steps, save=False))
            saving.append(block(run, arguments.steps, save=True))
        a_step = statistics.median(plain) / arguments.steps
        extra = statistics.median(b - a for a, b in zip(plain, saving, strict=True))
        result = {
            "preset": arguments.preset,
            "ranks": topology.world_size,
            "step_seconds": a_step,
            "extra_seconds": extra,
            "share": extra / (arguments.interval * a_step),
            "bytes": sum(
                path.stat().st_size for path in (run.out / "checkpoints").rglob("*.distcp")
            ),
        }
        if topology.is_main:
            print(json.dumps(result), flush=True)
            if arguments.json:
                Path(arguments.json).write_text(
                    json.dumps({"device": torch.cuda.get_device_name(), **result}, indent=1)
                )


def block(run: TrainingRun, steps: int, *, save: bool) -> float:
    """Run a block on all ranks; return its duration in seconds."""
    run.topology.sum_(torch.zeros(1, device=run.topology.device))
    torch.cuda.synchronize()
    begun = time.perf_counter()
    if save:
        run.save(wait=False)
    for _ in range(steps):
        train_step(run, run.feed, RATE)
        run.checkpoints.poll()
    run.checkpoints.wait()
    torch.cuda.synchronize()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
