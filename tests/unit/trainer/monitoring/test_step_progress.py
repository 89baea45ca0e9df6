"""Progress inside a step is shown only if the step is slow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from trainer.monitoring.step_progress import StepProgress, WithinStep


class Shown:
    def __init__(self, seconds: float) -> None:
        self.seconds_within = seconds
        self.found: list[WithinStep] = []

    def within_step(self, found: WithinStep) -> None:
        self.found.append(found)


def rows_of(shown: Shown, checked: list[int], rows: Iterator[Any]) -> StepProgress:
    return StepProgress(rows, shown, micro_batches=4, tokens=100.0, check=lambda: checked.append(1))


@pytest.mark.parametrize("seconds", [30.0, 0.5])
def test_progress_in_a_slow_step_is_shown_at_most_once_per_interval(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    shown, checked = Shown(seconds), []
    rows = rows_of(shown, checked, iter(range(8)))
    for number in range(8):
        assert next(rows) == number
        now += 20.0
    assert len(checked) == 8
    done = [found.done for found in shown.found]
    assert done == ([2, 2] if seconds == 30.0 else [1, 2, 3, 1, 2, 3])
    last = shown.found[-1]
    assert last.tokens_per_second == 5.0
    assert last.seconds_left == (4 - last.done) * 20.0


def test_fast_steps_show_nothing() -> None:
    shown, checked = Shown(30.0), []
    assert list(rows_of(shown, checked, iter(range(64)))) == list(range(64))
    assert shown.found == []
