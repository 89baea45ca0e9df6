"""Ablation: measure how each of several changes affects the training speed.

    python -m benchmarks.training.ablation DATASET --json ablation.json
    # the plot needs matplotlib, and no GPU
    python -m benchmarks.training.ablation --from-json ablation.json --plot docs/images/ablation.svg

DATASET has buckets (packed rows) of 16,384 tokens, with sequences of at most 1,024 tokens. All
variants train on the sequences of DATASET. In each variant, a step computes as many tokens as one
bucket has, padding included.

- hf-padded: EsmForMaskedLM with SDPA, bf16 autocast, fp32 weights, torch's fused AdamW and
  clipping. A step has 16 sequences, padded to 1,024 tokens. DataLoader workers tokenize
  (EsmTokenizer), pad, and mask (DataCollatorForLanguageModeling).
- torch-bshd: the same workers and padded sequences, and the trainer's own step with --backend
  torch.
- te-bshd: like torch-bshd, with --backend te.
- te-thd-online: like te-bshd, but workers pack sequences (next-fit) into rows without padding
  between sequences (THD).
- te-thd-shards: the trainer's own step, fed by its reader from packed shards, without workers and
  without a CUDA graph.
- te-thd-graph: like te-thd-shards, in a CUDA graph.
- te-thd-graph-fp8: like te-thd-graph, with --precision fp8-delayed.

Workers mask as in public recipes, so that the time of masking is measured. The trainer's step masks
on the device. Workers mask, as in public recipes, so that the time of masking is measured. The
trainer's step masks again, on the device. Before that, the original tokens are restored from the
labels. Workers prepare batches ahead of time. The warm-up consumes these batches before timing
begins.

Results are tokens/s (without padding, with special tokens) and the peak of torch's allocated memory
in GiB. If a variant fails, its row gives the reason, the other variants still run, and the exit
code is 1. The benchmark takes about two minutes on an H200.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final

import torch

from benchmarks.training.ablation.plot import draw
from benchmarks.training.ablation.steps import NotAvailableError, Step, forget, prepared
from benchmarks.training.ablation.variants import VARIANTS, Result
from benchmarks.training.ablation.workers import Recipe, sequences_of
from pipeline.storage.read_manifest import read_manifest
from trainer.config import PRESETS
from trainer.distributed.topology import Topology, process_group

SAMPLE: Final = 128
"""Number of buckets whose sequences the workers repeat endlessly."""


def measure(
    result: Result,
    step: Step,
    arguments: argparse.Namespace,
    *,
    batch_tokens: int,
    device: torch.device,
) -> None:
    """Time blocks of steps for at least `arguments.seconds`. Write the figures to `result`."""
    seconds, steps, total = 0.0, 0, 0.0
    for _ in range(arguments.warmup):
        float(step())
    while seconds < arguments.seconds:
        tokens = torch.zeros((), dtype=torch.float64, device=device)
        started = time.perf_counter()
        for _ in range(arguments.steps):
            tokens += step()
        # float() waits until the GPU has finished the block
        total, steps = total + float(tokens), steps + arguments.steps
        seconds += time.perf_counter() - started
    result.tokens_per_second, result.ms, result.fill = (
        total / seconds,
        1e3 * seconds / steps,
        total / steps / batch_tokens,
    )
    result.gib = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0


def results(arguments: argparse.Namespace, topology: Topology) -> Iterator[Result]:
    manifest = read_manifest(arguments.dataset)
    batch_tokens, columns, device = manifest.capacity, manifest.max_seq_len, topology.device
    texts = sequences_of(arguments.dataset, SAMPLE)
    load = partial(
        Recipe(batch_tokens=batch_tokens, columns=columns).loader,
        texts,
        workers=arguments.workers,
        pinned=device.type == "cuda",
    )
    for preset in arguments.presets:
        first: Result | None = None
        for name in arguments.variants:
            variant, result, options = (
                VARIANTS[name],
                Result(preset=preset, variant=name),
                PRESETS[preset][1],
            )
            if arguments.without_te and variant.backend == "te":
                variant = replace(variant, backend="torch")
            options = replace(
                options,
                data=replace(
                    options.data,
                    data=(arguments.dataset,),
                    buckets_per_step=1,
                    buckets_per_micro_batch=1,
                ),
            )
            forget(device)
            try:
                with ExitStack() as stack:
                    step = prepared(
                        variant, options, topology, lambda rows: iter(load(rows)), stack
                    )
                    measure(result, step, arguments, batch_tokens=batch_tokens, device=device)
            except NotAvailableError as error:
                result.note = f"not available: {error}"
            except Exception as error:  # the other variants still run
                result.note = f"failed: {type(error).__name__}: {error}"
            step = None
            first = first or result
            result.speedup = (
                result.tokens_per_second / first.tokens_per_second
                if first.tokens_per_second
                else 0.0
            )
            yield result


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", nargs="?")
    parser.add_argument(
        "--presets", nargs="+", default=["esm2-8m", "esm2-650m"], choices=list(PRESETS)
    )
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--steps", type=int, default=20, help="number of steps in a timed block")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="minimum time to measure a variant, in s"
    )
    parser.add_argument(
        "--warmup",
        type=int,
        default=20,
        help="number of steps before timing; must exceed the number of batches prepared ahead, "
        "which is 2 per worker",
    )
    parser.add_argument("--workers", type=int, default=8, help="number of DataLoader workers")
    parser.add_argument(
        "--without-te",
        action="store_true",
        help="use backend torch instead of te, to try the benchmark without a GPU",
    )
    parser.add_argument(
        "--json", type=Path, help="file for the results, rewritten after each variant"
    )
    parser.add_argument("--from-json", type=Path, help="plot this file instead of measuring")
    parser.add_argument("--plot", type=Path, help="file for the plot of the results")
    arguments = parser.parse_args()
    if (arguments.plot is None) != (arguments.from_json is None) or (arguments.dataset is None) == (
        arguments.plot is None
    ):
        parser.error("give either a DATASET, or both --from-json and --plot")
    return arguments


def main() -> int:
    arguments = parsed()
    if arguments.plot:
        draw(json.loads(arguments.from_json.read_text()), arguments.plot)
        return 0
    done: list[Result] = []
    with process_group() as topology:
        device = torch.cuda.get_device_name() if topology.device.type == "cuda" else "CPU"
        found = {
            "device": device,
            "torch": torch.__version__,
            "batch_tokens": read_manifest(arguments.dataset).capacity,
            "workers": arguments.workers,
        }
        for result in results(arguments, topology):
            done.append(result)
            print(result, file=sys.stderr, flush=True)
            if arguments.json:
                arguments.json.write_text(
                    json.dumps({**found, "results": [asdict(row) for row in done]}, indent=1)
                )
    print(
        "| preset | variant | tokens/s | | ms a step | fill | GiB |\n|---|---|---|---|---|---|---|",
        *done,
        sep="\n",
    )
    return int(any(result.failed for result in done))


if __name__ == "__main__":
    sys.exit(main())
