"""Twenty losses of a fixed run on the CPU: data, order, masks, initial weights, model, optimizer and schedule all stand behind them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch

from schemas.manifest import Manifest
from trainer.train import main

EXPECTED = json.loads((Path(__file__).parent / "losses.json").read_text())


def test_twenty_losses_are_what_they_were(build_here: Callable[..., Manifest], sample: Path, tmp_path: Path) -> None:
    build_here(sample, tmp_path / "data", capacity=2048, max_seq_len=512)
    options = "--steps 20 --buckets-per-step 2 --log-every 1 --checkpoint-every 0 --validate-every 0 --warmup-steps 5 --seed 7"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        main(["esm2-tiny", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "run"), *options.split()])
    finally:
        torch.set_num_threads(threads)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    found = [line["loss"] for line in lines if line["kind"] == "train"]
    assert len(found) == 20
    assert max(abs(loss - expected) for loss, expected in zip(found, EXPECTED, strict=True)) < 1e-5, found
