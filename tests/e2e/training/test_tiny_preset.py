"""The preset `esm2-tiny`, which a new user runs first."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.processes.command_line import preprocess
from trainer.train import main


def test_the_loss_of_the_tiny_preset_does_not_jump(
    sample: Path, tmp_path: Path, numerics: None
) -> None:
    """With a learning rate of 4e-3, the loss of this run jumped from 2.9 to 5.1 in step 18."""
    data = preprocess(sample, tmp_path / "data", "--capacity", "4096")
    words = ("--steps", "24", "--warmup-steps", "4", "--log-every", "1", "--validate-every", "0")
    main(["esm2-tiny", "--data", str(data), "--out", str(tmp_path / "run"), *words])
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    found = [line["loss"] for line in map(json.loads, lines) if line["kind"] == "train"]
    assert len(found) == 24
    assert max(found[10:]) < 3.3
