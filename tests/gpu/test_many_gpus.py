"""Runs on two GPUs: whole models, sharded optimizer state and FSDP2 give the same losses, captured
or eager.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.gpu.runs_8m import losses

pytestmark = [
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
STEPS = 10


def run(dataset: Path, out: Path, *flags: str) -> dict[int, float]:
    """Train 8M on two ranks. Return the loss of each step."""
    words = f"esm2-8m --data {dataset} --out {out} --steps {STEPS} --log-every 1"
    batch = "--buckets-per-step 8 --buckets-per-micro-batch 2 --validate-every 0"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "trainer.train"]
    subprocess.run([*command, *words.split(), *batch.split(), *flags], check=True)
    return losses(out)


@pytest.mark.parametrize("numbers", ["bf16", "fp8-delayed"])
def test_divisions_give_the_same_losses_captured_or_eager(
    dataset: Path, tmp_path: Path, numbers: str
) -> None:
    precision = ("--precision", numbers)
    sharded = run(dataset, tmp_path / "full", "--shard", "full", *precision)
    for shard in ("none", "optimizer"):
        found = {
            graph: run(
                dataset,
                tmp_path / f"{shard}-{graph}",
                "--shard",
                shard,
                "--cuda-graph",
                graph,
                *precision,
            )
            for graph in ("on", "off")
        }
        captured = max(abs(found["on"][step] - found["off"][step]) for step in sharded)
        divided = max(abs(found["on"][step] - sharded[step]) for step in sharded)
        print(numbers, shard, "captured against eager", captured, "against FSDP2", divided)
        # the embedding's gradient is added up by atomics, in any order
        assert captured < 1e-4
        # bf16 gradients are rounded before or after the sum over micro-batches
        assert divided < 5e-4


def test_what_auto_chooses_is_captured_on_two_gpus(dataset: Path, tmp_path: Path) -> None:
    run(dataset, tmp_path / "run")
    said = (tmp_path / "run" / "options.json").read_text()
    assert '"cuda_graph": "on"' in said
    assert '"shard": "none"' in said
