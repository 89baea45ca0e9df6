"""Training runs of esm2-8m."""

from __future__ import annotations

import json
from pathlib import Path

from trainer.train import main


def run_8m(dataset: Path, folder: Path, numbers: str, steps: int, *more: str) -> None:
    main(arguments_8m(dataset, folder, numbers, steps, *more))


def arguments_8m(dataset: Path, folder: Path, numbers: str, steps: int, *more: str) -> list[str]:
    common = {
        "--data": str(dataset),
        "--out": str(folder / "run"),
        "--precision": numbers,
        "--warmup-steps": "10" if steps < 30 else "20",
        "--buckets-per-step": "4",
        "--learning-rate": "2e-3",
        "--log-every": "1" if steps <= 200 else "20",
        "--checkpoint-every": "15",
        "--validate-every": "0",
        "--steps": str(steps),
    }
    return [
        "esm2-8m",
        *(word for flag, value in common.items() if flag not in more for word in (flag, value)),
        *more,
    ]


def losses(out: Path, kind: str = "train") -> dict[int, float]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == kind}
