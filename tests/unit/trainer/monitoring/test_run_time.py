"""The time of a run is estimated once, from whole steps. For a long run, the message suggests a
smaller --steps.
"""

from __future__ import annotations

import pytest
import torch

from trainer.monitoring.run_time import RemainingTime, RunTime, estimate


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def said(clock: list[float], device: str, seconds: list[float]) -> list[str]:
    """Return the message after each step of a run of 500,000 steps."""
    found, run_time = [], RunTime(torch.device(device), step=0, steps=500_000, warmup=2_000)
    for step, each in enumerate(seconds, start=1):
        clock[0] += each
        found.append(run_time.step(step))
    return found


def test_a_slow_run_is_estimated_after_one_step_and_only_once(clock: list[float]) -> None:
    [first, *others] = said(clock, "cpu", [61.0, 61.0, 61.0])
    assert first == (
        "499,999 more steps at 61 s a step: about 353.0 days; an hour is about 59 steps: to "
        "shorten the run, press Ctrl-C and run the same command with --steps 60 --warmup-steps 6"
    )
    assert others == ["", ""]


def test_a_fast_run_is_estimated_after_ten_seconds_of_steps(clock: list[float]) -> None:
    found = said(clock, "cpu", [2.0] * 6)
    assert [bool(text) for text in found] == [False, False, False, False, True, False]
    assert "at 2 s a step" in found[4]


@pytest.mark.parametrize(
    ("seconds", "steps", "each"),
    [
        ([14.0, 6.0, 5.0, 5.0], 3, "5 s"),  # step 3 is the first that counts
        ([5.1, 0.75, *[0.3] * 30], 16, "0.3 s"),
        ([5.1, 0.75, 0.3, 0.3, 0.3, 4.0, 0.3], 6, "0.3 s"),  # one step was disturbed
    ],
)
def test_on_a_cpu_slow_first_steps_do_not_make_the_estimate_too_high(
    clock: list[float], seconds: list[float], steps: int, each: str
) -> None:
    found = said(clock, "cpu", seconds)
    assert [step for step, text in enumerate(found, start=1) if text] == [steps]
    assert f"more steps at {each} a step: " in found[steps - 1]


def test_the_first_step_on_a_gpu_does_not_count_because_it_compiles(clock: list[float]) -> None:
    found = said(clock, "cuda", [90.0, 6.0, 6.0, 6.0])
    assert [bool(text) for text in found] == [False, False, True, False]
    assert "at 6 s a step" in found[2]


def test_the_time_of_validations_and_saves_does_not_count(clock: list[float]) -> None:
    run_time = RunTime(torch.device("cpu"), step=10, steps=100, warmup=10)
    for step in (11, 12):
        clock[0] += 4.0
        assert run_time.step(step) == ""
    clock[0] += 500.0
    run_time.resume()
    clock[0] += 4.0
    assert run_time.step(13) == "87 more steps at 4 s a step: about 5.8 minutes"


def test_no_estimate_is_shown_after_the_last_step(clock: list[float]) -> None:
    run_time = RunTime(torch.device("cpu"), step=0, steps=1, warmup=0)
    clock[0] += 31.0
    assert run_time.step(1) == ""


@pytest.mark.parametrize(
    ("seconds", "time", "remedy"),
    [
        (0.5, "an hour is about 7,200 steps", "--steps 7210"),
        (3_000.0, "a day is about 28 steps", "--steps 38 --warmup-steps 3"),
        (90_000.0, "a day is about 1 step", "--steps 11 --warmup-steps 1"),
    ],
)
def test_the_suggested_number_of_steps_includes_the_steps_already_done(
    seconds: float, time: str, remedy: str
) -> None:
    found = estimate(10, 500_000, seconds, warmup=20, long=86_400.0)
    assert f"; {time}: to shorten the run, press Ctrl-C" in found
    assert found.endswith(f"run the same command with {remedy}")


@pytest.mark.parametrize(
    ("device", "steps", "remedy"),
    [("cpu", 1_200, True), ("cuda", 1_200, False), ("cuda", 9_000, True), ("cpu", 200, False)],
)
def test_a_shorter_run_is_proposed_above_an_hour_on_a_cpu_and_a_day_on_a_gpu(
    clock: list[float], device: str, steps: int, remedy: bool
) -> None:
    run_time = RunTime(torch.device(device), step=0, steps=steps, warmup=steps // 10)
    found = []
    for step in (1, 2, 3):
        clock[0] += 15.0
        found.append(run_time.step(step))
    assert sum("--steps" in text for text in found) == remedy
    assert sum(bool(text) for text in found) == 1


def test_the_remaining_time_follows_the_measured_speed(clock: list[float]) -> None:
    remaining, found = RemainingTime(2_000), {}
    for step in range(1, 2_001):
        clock[0] += 90.0 if step == 1 else 2.0 if step < 1_000 else 6.0
        remaining.step(step)
        found[step] = remaining.text()
    assert found[1] == ""  # the first step may compile kernels
    assert found[2] == " · about 1.1 hours left"
    assert found[1_000 + 600] == " · about 40.0 minutes left"  # at 6 s a step
    assert found[1_999] == " · under a minute left"
    assert found[2_000] == ""
