"""Compare context parallelism (several ranks share a bucket) with a single rank.

For the same bucket and weights, the benchmark compares the loss, the gradients, and the time of
forward and backward.

    torchrun --nproc-per-node 4 -m benchmarks.training.context_parallel DATASET --presets esm2-650m

The ranks that share a bucket are called a group. The benchmark measures each group size that
divides the number of ranks. Initial weights are random, as in a training run, and all weight
matrices are then multiplied by 3. With smaller weights, attention would be nearly uniform. Each
rank holds all parameters (with backend `te`, in bf16). Gradients are summed over a group in fp32.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from pipeline.reader import ShardReader
from schemas.vocabulary import ESM2
from trainer import precision
from trainer.config import PRESETS, ComputeOptions
from trainer.distributed.topology import Topology, process_group
from trainer.feed import Feed
from trainer.masking import Masker
from trainer.model.initialize import build, fill


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("--presets", nargs="+", default=["esm2-650m"], choices=list(PRESETS))
    parser.add_argument("--backends", nargs="+", default=["te"])
    parser.add_argument("--precisions", nargs="+", default=["bf16"])
    parser.add_argument("--recompute", default="none")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", default="", help="file for the results")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with process_group() as topology:
        sizes = [
            size for size in range(1, topology.world_size + 1) if topology.world_size % size == 0
        ]
        for preset in arguments.presets:
            for backend in arguments.backends:
                for numbers in arguments.precisions:
                    alone: dict[str, Any] = {}
                    for size in sizes:
                        options = ComputeOptions(
                            backend=backend,
                            precision=numbers,
                            context_parallel=size,
                            recompute=arguments.recompute,
                        )
                        try:
                            found = measured(
                                preset, arguments.dataset, options, topology, arguments.repeats
                            )
                        except torch.OutOfMemoryError:
                            found = {}
                        row = {
                            "preset": preset,
                            "backend": backend,
                            "precision": numbers,
                            "context_parallel": size,
                            **compared(found, alone),
                        }
                        alone = alone or found
                        rows.append(row)
                        if topology.is_main:
                            print(
                                " · ".join(
                                    f"{key} {value:.6g}"
                                    if isinstance(value, float)
                                    else f"{key} {value}"
                                    for key, value in row.items()
                                ),
                                flush=True,
                            )
                        del found
                        gc.collect()
                        torch.cuda.empty_cache()
        if topology.is_main and arguments.json:
            Path(arguments.json).write_text(
                json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=1)
            )


def compared(found: dict[str, Any], alone: dict[str, Any]) -> dict[str, Any]:
    if not found:
        return {"out_of_memory": True}
    row = {name: found[name] for name in ("loss", "ms", "gib")}
    if not alone:
        return row
    cosines = [
        F.cosine_similarity(a.flatten(), b.flatten(), dim=0).item()
        for a, b in zip(found["grads"], alone["grads"], strict=True)
    ]
    dot = sum(
        torch.dot(a.flatten(), b.flatten()).double()
        for a, b in zip(found["grads"], alone["grads"], strict=True)
    )
    norms = [
        sum(g.double().square().sum() for g in grads).sqrt()
        for grads in (found["grads"], alone["grads"])
    ]
    relative = abs(found["loss"] - alone["loss"]) / alone["loss"]
    return {
        **row,
        "loss_difference": relative,
        "gradient_cosine": float(dot / norms[0] / norms[1]),
        "worst_tensor_cosine": min(cosines),
    }


def measured(
    preset: str, dataset: str, options: ComputeOptions, everyone: Topology, repeats: int
) -> dict[str, Any]:
    """Run forward and backward passes on the first bucket.

    Returns:
        loss: mean loss over the masked tokens
        grads: gradients of the summed loss with respect to each parameter, fp32 on the CPU
        ms: median time of forward and backward, in ms
        gib: peak of allocated memory in GiB
    """
    topology = everyone.for_options(options)
    torch.cuda.reset_peak_memory_stats()
    model = build(PRESETS[preset][1].model, options, topology.slices)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(precision.stored_dtype(options))
    fill(model, {}, seed=0, topology=topology)
    with torch.no_grad():
        for _, parameter in model.named_weights():
            if parameter.ndim == 2:
                parameter.mul_(3)
    with ShardReader(dataset, prefetch=0) as reader:
        row = next(Feed(reader, buckets=1, stride=1, device=topology.device))
        masker = Masker(
            ESM2,
            seed=0,
            probability=0.15,
            epoch_buckets=len(reader),
            device=topology.device,
            slices=topology.slices,
        )
        times = []
        for _ in range(repeats + 1):
            model.zero_grad(set_to_none=True)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            masked = masker(row.input_ids, row.positions)
            with precision.autocast(options, topology.device, sharded=False):
                logits = model(masked.input_ids, row.sequences, masked.index)
            loss = F.cross_entropy(logits, masked.labels, reduction="sum")
            loss.backward()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
    gib = torch.cuda.max_memory_allocated() / 2**30
    sums = torch.stack([loss.detach().double(), (masked.labels >= 0).sum().double()])
    grads = [parameter.grad.float() for _, parameter in model.named_weights()]
    # all groups compute the same bucket: divide the sum over ranks by the number of groups
    share = topology.slices.ranks / topology.world_size
    for tensor in (sums, *grads):
        dist.all_reduce(tensor)
        tensor.mul_(share)
    return {
        "loss": float(sums[0] / sums[1]),
        "grads": [grad.cpu() for grad in grads],
        "ms": statistics.median(times[1:]),
        "gib": gib,
    }


if __name__ == "__main__":
    main()
