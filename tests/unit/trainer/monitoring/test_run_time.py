"""The time of a run is estimated once, from whole steps. For a long run, --steps is suggested."""

from __future__ import annotations

import pytest
import torch

from trainer.monitoring.run_time import RunTime, estimate


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def said(clock: list[float], device: str, seconds: list[float]) -> list[str]:
    """Return the message after each step of a run of 500,000 steps."""
    found, run_time = [], RunTime(torch.device(device), step=0, steps=500_000)
    for step, each in enumerate(seconds, start=1):
        clock[0] += each
        found.append(run_time.step(step))
    return found


def test_a_slow_run_is_estimated_after_one_step_and_only_once(clock: list[float]) -> None:
    [first, *others] = said(clock, "cpu", [31.0, 31.0, 31.0])
    assert first == (
        "499,999 more steps at 31 s a step: about 179.4 days; an hour is about 116 steps: "
        "pass --steps 117"
    )
    assert others == ["", ""]


def test_a_fast_run_is_estimated_after_ten_seconds_of_steps(clock: list[float]) -> None:
    found = said(clock, "cpu", [4.0] * 5)
    assert [bool(text) for text in found] == [False, False, True, False, False]
    assert "at 4 s a step" in found[2]


def test_the_first_step_on_a_gpu_does_not_count_because_it_compiles(clock: list[float]) -> None:
    found = said(clock, "cuda", [90.0, 6.0, 6.0, 6.0])
    assert [bool(text) for text in found] == [False, False, True, False]
    assert "at 6 s a step" in found[2]


def test_validations_and_saves_do_not_count(clock: list[float]) -> None:
    run_time = RunTime(torch.device("cpu"), step=10, steps=100)
    clock[0] += 6.0
    assert run_time.step(11) == ""
    clock[0] += 500.0
    run_time.resume()
    clock[0] += 6.0
    assert run_time.step(12) == "88 more steps at 6 s a step: about 8.8 minutes"


def test_the_last_step_needs_no_estimate(clock: list[float]) -> None:
    run_time = RunTime(torch.device("cpu"), step=0, steps=1)
    clock[0] += 31.0
    assert run_time.step(1) == ""


@pytest.mark.parametrize(
    ("seconds", "remedy"),
    [
        (0.5, "an hour is about 7,200 steps: pass --steps 7210"),
        (3_000.0, "a day is about 28 steps: pass --steps 38"),
        (90_000.0, "a day is about 1 step: pass --steps 11"),
    ],
)
def test_the_remedy_counts_the_steps_that_are_done(seconds: float, remedy: str) -> None:
    assert estimate(10, 500_000, seconds).endswith(remedy)
