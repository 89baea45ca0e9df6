"""`thdpack plan`: what it prints, and its errors."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.planning.search_settings import WORTH_NO_FLAGS
from tests.helpers.processes.command_line import Run
from trainer.config import PRESETS, parse


def test_a_plan_names_flags_that_the_trainer_accepts(
    large: Path,
    run: Run,
    run_process: Run,
) -> None:
    words = ("plan", "--data", large, "--model", "esm2-3b", "--gpus", "4xH200")
    said = json.loads(run_process(*words, "--json").stdout)
    launcher, _, flags = said["command"].partition(" train ")
    wait = f"--shutdown-timeout {said['shutdown_timeout']}"
    assert launcher == f"torchrun --nproc-per-node 4 {wait} -m thdpack"
    options = parse(flags.split())
    assert options.model == PRESETS["esm2-3b"][1].model
    assert options.data.buckets_per_step % (4 * options.data.buckets_per_micro_batch) == 0
    assert options.data.buckets_per_step * 4096 == pytest.approx(2_097_152, rel=0.1)
    assert said["settings"]["shard"] == "none"
    assert said["settings"]["cuda_graph"]
    assert said["memory_gib"] == pytest.approx(sum(said["memory_bytes"].values()) / 2**30)
    assert said["epoch"]["gpu_hours"] == pytest.approx(4 * said["epoch"]["hours"])
    rates = [
        said["tokens_per_second"],
        *(each["tokens_per_second"] for each in said["alternatives"]),
    ]
    assert rates[1:] == sorted(rates[1:], reverse=True)
    # a plan has the trainer's default settings unless other settings are faster by this factor
    assert rates[0] >= rates[1] / WORTH_NO_FLAGS
    assert len(rates) > 1
    text = run(*words).stdout
    assert "GPU-hours" in text
    assert "which is 100 epochs of the data; the preset's 500,000 would be" in text
    assert "for a run from random weights (--init-from: at most 20)" in text
    assert "warning" not in text
    assert said["command"] in text
    assert rates[1] > rates[0]
    assert "the trainer chooses the settings above by itself; this plan prefers another" in text
    epoch = said["epoch"]["tokens"]
    text = run(*words, "--tokens", str(300 * epoch)).stdout
    assert "warning: this run is 300 epochs" in text
    assert f"--tokens {20 * epoch} plans 20 epochs" in text
    assert "warning" not in run(*words, "--tokens", str(20 * epoch)).stdout


def test_a_plan_for_several_nodes_says_why_a_faster_setting_is_not_preferred(
    dataset: Path, run: Run
) -> None:
    words = ("plan", "--data", dataset, "--model", "esm2-15b", "--gpus", "2x4xH100")
    said = json.loads(run(*words, "--json").stdout)
    fastest = max(each["tokens_per_second"] for each in said["alternatives"])
    assert fastest > WORTH_NO_FLAGS * said["tokens_per_second"]
    assert "divides the model among all nodes" in run(*words).stdout.replace("\n", " ")


def test_a_plan_for_unmeasured_gpus_shows_times_of_h200s(dataset: Path, run: Run) -> None:
    measured = run("plan", "--data", dataset, "--gpus", "8xH200").stdout
    assert "tokens/s   " in measured
    assert "was measured" not in measured
    others = run("plan", "--data", dataset, "--gpus", "8xH100").stdout.splitlines()
    assert others[0].startswith("esm2-650m on 8 H100, bf16")
    assert others[1].startswith("tokens/s and times below are those of H200s")
    assert "takes 1 to 1.43 times as long" in others[1]
    assert others[2].startswith("tokens/s of H200  ")
    assert others[-1].endswith("does not apply to H100, which was not measured.")


@pytest.mark.parametrize("gpus", ["8xH100", "1xH200"])
def test_a_plan_marks_the_trainers_default_and_no_line_ends_between_a_number_and_its_unit(
    dataset: Path, run: Run, monkeypatch: pytest.MonkeyPatch, gpus: str
) -> None:
    for columns in range(60, 100, 3):
        monkeypatch.setattr(Console, "width", columns)
        lines = run("plan", "--data", dataset, "--gpus", gpus).stdout.splitlines()
        table = [line for line in lines if re.match(r"tokens/s( of|  )|settings  |  +\S", line)]
        assert len(table) > 5
        assert not [line for line in table if re.search(r"\d$", line)]
        assert sum("(the trainer's default)" in line for line in lines) <= 1
    assert sum("(the trainer's default)" in line for line in lines) == 1


def test_a_run_that_cannot_be_planned_is_an_error_with_the_reason(
    dataset: Path, run: Run, tmp_path: Path
) -> None:
    for arguments, words in (
        (("--model", "esm2-15b", "--gpus", "1xH200"), "needs at least"),
        (("--model", "x", "--gpus", "1xH200"), "the presets are esm2-8m"),
        (("--precision", "fp8"), "thdpack plan: --precision is 'fp8': did you mean fp8-delayed?"),
        (("--model", "esm2-650", "--gpus", "1xH200"), "did you mean esm2-650m?"),
        (("--model", "esm2_t33_650M_UR50D"), "its preset is esm2-650m (--init-from"),
        (("--model", "esm2-tiny"), "Run `thdpack train esm2-tiny --data"),
        (("--gpus", "H200"), "such as 8xH200"),
        (("--gpus", "8xB200"), "B200 is unknown; there are plans for H200 and H100. For a CPU or"),
        (("--gpus", "cpu"), "run `thdpack train` with --dry-run"),
        (("--gpus", "H100:8"), "thdpack plan: --gpus is 'H100:8': write 8xH100\n"),
        (("--gpus", "2*8 h200"), "write 2x8xH200\n"),
        (("--gpus", "0xH200"), "expected a number and a kind"),
    ):
        found = run("plan", "--data", dataset, *arguments)
        assert found.returncode == 2
        assert words in found.stderr
    missing = run("plan", "--data", tmp_path / "none")
    assert missing.returncode == 1
    assert os.fspath(tmp_path / "none") in missing.stderr


def test_a_plan_on_tiny_data_has_no_zeros_and_no_wrong_plurals(dataset: Path, run: Run) -> None:
    words = ("plan", "--model", "esm2-8m", "--gpus", "8xH200", "--data", dataset)
    for tokens in ("0", "1000"):
        text = " ".join(run(*words, "--tokens", tokens).stdout.split())
        assert "1 micro-batch of 1 bucket, " in text
        assert ": under a minute, under 0.01 GPU-hours the run" in text
        assert not re.search(r"(?<![\d.,])1 (steps|buckets|micro-batches|GPUs)\b", text)
        assert not re.search(r"(?<![\d.,])0(\.0+)? (s|GiB|GPU-hours|seconds|steps)\b", text)
    assert "the run 1,000 tokens, 1 step: under a minute" in text
    told = json.loads(run("plan", "--data", dataset, "--tokens", "1000", "--json").stdout)
    assert told["run"]["steps"] == 1


def test_a_plan_says_which_gpus_it_assumes_without_the_option(dataset: Path, run: Run) -> None:
    words = ("plan", "--data", dataset)
    assert "on 8 H200 (assumed, as --gpus is missing), bf16" in run(*words).stdout
    assert "on 8 H200, bf16" in run(*words, "--gpus", "8xH200").stdout


def test_a_plan_for_several_nodes_says_how_to_use_its_command(dataset: Path, run: Run) -> None:
    plan = ("plan", "--data", dataset, "--model", "esm2-8m", "--gpus")
    text = run(*plan, "16xH200").stdout
    assert text.startswith("esm2-8m on 16 H200 (2 nodes of 8 GPUs), bf16")
    assert "NODE0:29500" in text
    assert "on each of the 2 nodes; in all of them, replace NODE0 by the name" in text
    assert "--out must be a folder that all nodes share" in text
    assert "NODE0" not in run(*plan, "8xH200").stdout
