"""Transformer Engine writes layer statistics (`--tensor-statistics`) during training."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.runs_8m import arguments_8m


def statistics_of(dataset: Path, folder: Path, steps: int, *flags: str) -> list[dict[str, Any]]:
    """Return the statistics that a run writes.

    The run has its own process, because Transformer Engine checks only once per process whether
    statistics are on.
    """
    if not find_spec("nvdlfw_inspect"):
        pytest.skip("nvdlfw_inspect is not installed")
    command = [
        sys.executable,
        "-m",
        "trainer.train",
        *arguments_8m(dataset, folder, "fp8-delayed", steps, *flags),
    ]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=140,
    )
    assert done.returncode == 0, done.stderr
    return [
        json.loads(line)
        for line in (folder / "run" / "statistics" / "statistics.jsonl").read_text().splitlines()
    ]


@pytest.mark.timeout(400)
def test_layer_statistics_follow_the_configuration(dataset: Path, tmp_path: Path) -> None:
    flags = ("--tensor-statistics", "2", "--precision-layers", "inner:1")
    lines = statistics_of(dataset, tmp_path, 4, "--warmup-steps", "2", *flags)
    assert {line["step"] for line in lines} == {2, 4}
    modules = ("layernorm_qkv", "proj", "layernorm_mlp.fc1", "layernorm_mlp.fc2")
    assert {line["layer"] for line in lines} == {
        f"layers.{number}.{module}" for number in range(6) for module in modules
    }
    assert {line["tensor"] for line in lines} == {"activation", "gradient", "weight"}
    assert not [line for line in lines if line["value"] is None]
    assert {line["layer"][7] for line in lines if line["statistic"] == "underflows%"} == set("1234")
    values = {
        (line["step"], line["layer"], line["tensor"], line["statistic"]): line["value"]
        for line in lines
    }
    for (step, layer, tensor, statistic), value in values.items():
        if statistic == "mean":
            assert values[step, layer, tensor, "min"] < value < values[step, layer, tensor, "max"]
            assert values[step, layer, tensor, "l2_norm"] > 0
    config = tmp_path / "run" / "statistics" / "config.yaml"
    config.write_text(config.read_text().replace("freq: 2", "freq: 5"))
    again = statistics_of(dataset, tmp_path, 6, "--warmup-steps", "2", *flags)
    assert {line["step"] for line in again} == {2, 4, 5}
    assert again[: len(lines)] == lines


@pytest.mark.timeout(400)
def test_statistics_do_not_include_validation(dataset: Path, tmp_path: Path) -> None:
    norms = []
    for every in ("0", "1"):
        lines = statistics_of(
            dataset,
            tmp_path / every,
            2,
            "--warmup-steps",
            "1",
            "--tensor-statistics",
            "1",
            "--validate-every",
            every,
        )
        norms.append(
            {
                line["layer"]: line["value"]
                for line in lines
                if (line["step"], line["tensor"], line["statistic"]) == (2, "activation", "l2_norm")
            }
        )
    assert len(norms[0]) == 24
    assert max(abs(norms[1][layer] / norms[0][layer] - 1) for layer in norms[0]) < 0.02
