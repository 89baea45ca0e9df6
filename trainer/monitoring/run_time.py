"""Estimate the time of a whole run from the speed of its first steps, and later the remaining
time."""

from __future__ import annotations

import time
from collections import deque
from statistics import fmean, median
from typing import Final

import torch

from schemas.text.phrases import about, plural

_ENOUGH_SECONDS: Final = 10.0
"""Seconds of training after which the time is estimated. The clock runs on the host, and a GPU is
at most three micro-batches behind the host (see `feed.py`). Three micro-batches take much less than
10 seconds, so this delay hardly changes the estimate."""
_SLOW_STEPS: Final = 2
"""Number of first steps on a CPU that do not count. Memory is allocated in them, and libraries
choose their kernels. Such a step may take ten times as long as later ones."""
_LONG_STEP: Final = 60.0
"""Seconds of a step on a CPU that counts even if it is one of the first, so that the user needs not
wait for later steps. Compared with so long a step, the additional time of a first step is short."""
_HOUR: Final = 3_600.0
_DAY: Final = 86_400.0
"""If a run takes longer than an hour on a CPU, or a day on a GPU, a shorter run is proposed."""
_BETWEEN: Final = 1.0
_MOST_MEASURED: Final = 600
"""The remaining time is computed from the last 600 steps that are at least a second apart."""


class RunTime:
    """Clock of a run's first steps. Validations and checkpoints do not count.

    On a CPU, the estimate is the median of the steps. On a GPU, it is their mean, because the host
    starts several steps before the GPU has finished the first of them.
    """

    def __init__(self, device: torch.device, *, step: int, steps: int, warmup: int) -> None:
        """Args:
        step: number of steps of the run so far.
        steps: number of steps of the whole run.
        warmup: number of steps of the warm-up.
        """
        self._steps, self._warmup = steps, warmup
        self._on_cpu = device.type == "cpu"
        self._long = _HOUR if self._on_cpu else _DAY
        self._counted: list[float] = []
        self._elapsed = 0.0
        self._said = False
        # on a GPU, the first step compiles kernels
        self._slow_until = step + (_SLOW_STEPS if self._on_cpu else 1)
        self._last = time.monotonic()

    def step(self, step: int) -> str:
        """Count a step. Return the estimate once, after the first steps; "" at other times.

        Args:
            step: number of steps of the run so far, including this step.
        """
        if self._said:
            return ""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        counts = step > self._slow_until or (self._on_cpu and seconds >= _LONG_STEP)
        if counts:
            self._counted.append(seconds)
        if counts or self._on_cpu:
            self._elapsed += seconds
        if not self._counted or self._elapsed < _ENOUGH_SECONDS or step == self._steps:
            return ""
        self._said = True
        each = (median if self._on_cpu else fmean)(self._counted)
        return estimate(step, self._steps, each, warmup=self._warmup, long=self._long)

    def resume(self) -> None:
        """Restart the clock after a validation or a save, whose time does not count."""
        self._last = time.monotonic()


class RemainingTime:
    """Time until the last step, from the speed of the last ten minutes or so. Validations and
    checkpoints count, because the remaining time has such breaks, too."""

    def __init__(self, steps: int) -> None:
        """Args:
        steps: number of steps of the whole run.
        """
        self._steps = steps
        self._measured: deque[tuple[float, int]] = deque(maxlen=_MOST_MEASURED)

    def step(self, step: int) -> None:
        """Note that a step has ended.

        Args:
            step: number of steps of the run so far, including this step.
        """
        now = time.monotonic()
        if not self._measured or now - self._measured[-1][0] >= _BETWEEN:
            self._measured.append((now, step))
        self._now, self._step = now, step

    def text(self) -> str:
        """Return the time in words, such as " · about 6.0 minutes left"; "" before it is known, and
        after the last step."""
        if not self._measured:
            return ""
        began, first = self._measured[0]
        left = self._steps - self._step
        if self._step == first or not left:
            return ""
        return f" · {about(left * (self._now - began) / (self._step - first))} left"


def estimate(step: int, steps: int, seconds: float, *, warmup: int, long: float) -> str:
    """Return a sentence about the time of the steps after `step`, each of which takes `seconds`.

    If the steps take more than `long` seconds in total, the sentence proposes a shorter run. If the
    warm-up is more than a tenth of that run, the sentence also proposes a shorter warm-up.
    """
    left = (steps - step) * seconds
    each = f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
    said = f"{plural(steps - step, 'more step')} at {each} a step: {about(left)}"
    name, unit = ("an hour", _HOUR) if seconds < 600 else ("a day", _DAY)
    fewer = max(1, int(unit / seconds))
    if left <= long or fewer >= steps - step:
        return said
    remedy = f"--steps {step + fewer}"
    if warmup > (step + fewer) // 10:
        remedy += f" --warmup-steps {(step + fewer) // 10}"
    return (
        f"{said}; {name} is about {plural(fewer, 'step')}: to shorten the run, press Ctrl-C and "
        f"run the same command with {remedy}"
    )
