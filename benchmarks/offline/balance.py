"""Measure how much time ranks save if all buckets have nearly the same attention cost.

    for packer in balanced best-fit next-fit; do
        thdpack preprocess FASTA --out data/$packer --packer $packer
    done
    python -m benchmarks.offline.balance data/balanced data/best-fit data/next-fit \\
        --preset esm2-650m

A bucket is one row of packed sequences. The attention cost of a bucket is Σ length² over its
sequences. On one GPU, the benchmark captures a step in a CUDA graph, and times this step on each
bucket. The time of a bucket is the median over three passes.

With N ranks, a micro-batch takes as long as the slowest of N buckets. To simulate a micro-batch,
the benchmark draws the times of N buckets at random and takes their maximum. The result is the
mean of these maxima over many micro-batches, divided by the mean time of a bucket.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.training.train_step import RATE
from trainer.config import PRESETS
from trainer.distributed.topology import process_group
from trainer.run import TrainingRun
from trainer.train import train_step

RANKS = (4, 8, 64)
PASSES = 3
DRAWS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--preset", default="esm2-650m", choices=list(PRESETS))
    parser.add_argument("--buckets", type=int, default=60, help="maximum number of buckets to time")
    parser.add_argument("--json", default="", help="file for the results")
    arguments = parser.parse_args()
    rows = []
    with process_group() as topology:
        for dataset in arguments.datasets:
            with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
                options = PRESETS[arguments.preset][1]
                data = replace(
                    options.data, data=(dataset,), buckets_per_step=1, buckets_per_micro_batch=1
                )
                output = replace(options.output, out=folder)
                run = TrainingRun(replace(options, data=data, output=output), topology, stack)
                rows.append(
                    {"dataset": dataset, **spread(run, min(arguments.buckets, len(run.reader)))}
                )
                print(json.dumps(rows[-1]), flush=True)
                del run
                torch.cuda.empty_cache()
    if arguments.json:
        Path(arguments.json).write_text(
            json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=1)
        )


def spread(run: TrainingRun, buckets: int) -> dict[str, Any]:
    """Time a step on each bucket.

    Returns:
        ms: mean time of a step in ms
        variation, cost_variation: coefficient of variation of the times and of the attention costs
        slowest_of_N: mean time of the slowest of N buckets, divided by the mean time of a bucket
    """
    if run.start.not_captured:
        raise SystemExit(
            f"balance: the step cannot be captured in a CUDA graph ({run.start.not_captured}). "
            "Without a graph, times would depend on the host"
        )
    passes, squares = [], []
    state = run.reader.state_dict()
    for _ in range(PASSES + 1):
        run.reader.load_state_dict(state)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(buckets + 1)]
        marks[0].record()
        for number in range(buckets):
            counts = train_step(run, run.feed, RATE)[1]
            marks[number + 1].record()
            squares.append(counts[3].clone())
        torch.cuda.synchronize()
        passes.append([begin.elapsed_time(end) for begin, end in itertools.pairwise(marks)])
    times = [
        statistics.median(each) for each in zip(*passes[1:], strict=True)
    ]  # without the first pass, which captures the step
    costs = torch.stack(squares[:buckets])
    mean = statistics.fmean(times)
    draw = random.Random(0)
    slowest = {
        f"slowest_of_{n}": statistics.fmean(max(draw.choices(times, k=n)) for _ in range(DRAWS))
        / mean
        for n in RANKS
    }
    return {
        "ms": mean,
        "variation": statistics.pstdev(times) / mean,
        "cost_variation": float(costs.std() / costs.mean()),
        **slowest,
    }


if __name__ == "__main__":
    main()
