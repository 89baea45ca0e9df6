"""Estimate the time of a whole run from the speed of its first steps."""

from __future__ import annotations

import time
from typing import Final

import torch

from schemas.text.phrases import duration, plural

_ENOUGH_SECONDS: Final = 10.0
"""Time of whole steps after which the estimate is made, in seconds. A GPU is at most three rows
behind the host (see `feed.py`). Three rows are short compared with this time."""
_DAY: Final = 86_400.0


class RunTime:
    """Clock of a run's first steps. Validations and checkpoints do not count."""

    def __init__(self, device: torch.device, *, step: int, steps: int) -> None:
        """Args:
        step: number of steps of the run so far.
        steps: number of steps of the whole run.
        """
        self._steps = steps
        self._counted, self._seconds = 0, 0.0
        self._said = False
        # On a GPU the clock starts after the first step, which compiles kernels.
        self._skipped = step if device.type == "cpu" else step + 1
        self._last = time.monotonic()

    def step(self, step: int) -> str:
        """Count a step. Return the estimate once, after the first steps; "" at other times.

        Args:
            step: number of steps of the run so far, including this step.
        """
        if self._said:
            return ""
        now = time.monotonic()
        if step > self._skipped:
            self._counted += 1
            self._seconds += now - self._last
        self._last = now
        if self._seconds < _ENOUGH_SECONDS or step == self._steps:
            return ""
        self._said = True
        return estimate(step, self._steps, self._seconds / self._counted)

    def resume(self) -> None:
        """Restart the clock after a validation or a save, whose time does not count."""
        self._last = time.monotonic()


def estimate(step: int, steps: int, seconds: float) -> str:
    """Return a sentence about the time of the steps after `step`, each of which takes `seconds`.

    If the steps take more than a day in total, the sentence proposes a shorter run.
    """
    left = (steps - step) * seconds
    each = f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
    said = f"{plural(steps - step, 'more step')} at {each} a step: about {duration(left)}"
    if left <= _DAY:
        return said
    name, unit = ("an hour", _DAY / 24) if seconds < 600 else ("a day", _DAY)
    fewer = max(1, int(unit / seconds))
    return f"{said}; {name} is about {plural(fewer, 'step')}: pass --steps {step + fewer}"
