"""Model FLOPs, metrics.jsonl and W&B."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.helpers.models import ALONE, SMALL, initialized
from trainer.config import TrainOptions
from trainer.model.esm2 import PADDED_VOCABULARY, SequenceLayout
from trainer.monitoring.flops import model_flops
from trainer.monitoring.meter import StepMetrics, epoch_of
from trainer.monitoring.run_log import RunLog
from trainer.monitoring.trackers import check_trackers
from trainer.validate import Validation


def run_log(out: Path, step: int = 0) -> RunLog:
    options = TrainOptions(output=replace(TrainOptions().output, out=str(out)))
    return RunLog(options, ALONE, step=step)


def test_model_flops_match_the_count_of_torch() -> None:
    built, _ = initialized()
    ids = torch.randint(4, 24, (96,))
    sequences = SequenceLayout(torch.tensor([0, 64, 96], dtype=torch.int32), 64)
    index = torch.arange(0, 96, 6)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        built(ids, sequences, index)
    expected = model_flops(SMALL, tokens=96, squares=64**2 + 32**2, predicted=16)
    # times 3, because the backward pass has twice as many FLOPs as the forward pass
    assert 3 * counter.get_total_flops() == expected
    assert PADDED_VOCABULARY == 64


def test_the_epoch_of_a_position_matches_a_count_of_the_buckets_of_each_variant() -> None:
    sizes = (3, 1, 4)  # an epoch reads one variant, and variants differ in size
    expected = [epoch for epoch in range(9) for _ in range(sizes[epoch % 3])]
    assert [epoch_of(position, sizes) for position in range(len(expected))] == expected


@pytest.mark.parametrize("cut", [b'{"kind": "tr', b"3", b"{}", b"\xff", b"[" * 100_000])
def test_a_resume_drops_metrics_of_later_steps_and_a_truncated_line(
    tmp_path: Path, cut: bytes
) -> None:
    lines = [json.dumps({"kind": "train", "step": step, "loss": 1.0}) for step in (10, 20, 30)]
    (tmp_path / "metrics.jsonl").write_bytes("\n".join(lines).encode() + b"\n" + cut)
    with run_log(tmp_path, step=20):
        pass
    assert [
        json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ] == [10, 20]


LINE = StepMetrics(
    step=123_456,
    loss=2.904,
    perplexity=18.2,
    grad_norm=0.5,
    learning_rate=4e-4,
    epoch=0,
    tokens=1,
    tokens_per_second=123_456.0,
    tokens_per_second_per_device=123_456.0,
    step_seconds=0.1,
    mfu=0.45,
    data_wait=0.0,
    memory=3 << 30,
    skipped=0,
    overflow=0,
    bad_in_a_row=0,
)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_live_line_cuts_off_metrics_but_never_the_step(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int,
) -> None:
    for variable, value in (("COLUMNS", f"{width}"), ("TTY_COMPATIBLE", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(variable, value)
    with run_log(tmp_path) as log:
        log.metrics(LINE)
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err).split("\r")[-1].strip()
    assert re.match(r"step 123456/500000 [━╸╺ ]+ -:--:-- loss 2.9040 · ", last)
    assert len(last.splitlines()) == 1
    assert ("GiB" in last) is (width == 200)


@pytest.mark.parametrize(("loss", "shown"), [(2.0, "7.389"), (2000.0, "1.0e+304")])
def test_a_large_perplexity_has_an_exponent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], loss: float, shown: str
) -> None:
    with run_log(tmp_path) as log:
        log.validation(10, Validation(loss=loss, accuracy=0.5, tokens=9), "valid")
    assert f" · perplexity {shown} · accuracy 50.00% of 9 tokens" in capsys.readouterr().err


def test_the_error_for_a_missing_wandb_package_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    options = replace(
        TrainOptions(), output=replace(TrainOptions().output, out=str(tmp_path), wandb_project="p")
    )
    with pytest.raises(ValueError, match="pip install wandb"):
        check_trackers(options)
