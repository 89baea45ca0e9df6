"""Progress inside a slow step.

The host counts the rows that it passes to the step. Each row is a micro-batch, a part of the step.
For each micro-batch, the host reads the clock and makes a few comparisons, but does not wait for
the device. A GPU may be up to three rows behind the host (see `feed.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from trainer.feed import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class WithinStep:
    """Progress of a step.

    done: number of micro-batches of this rank that the step has received.
    micro_batches: number of micro-batches of this rank in a step.
    tokens_per_second: estimated speed of all ranks in this step.
    seconds_left: estimated time until the end of this step.
    """

    done: int
    micro_batches: int
    tokens_per_second: float
    seconds_left: float


class Shown(Protocol):
    """Destination of progress reports.

    seconds_within: minimum time between two reports, in seconds.
    """

    seconds_within: float

    def within_step(self, found: WithinStep) -> None:
        """Show the progress of the current step."""


class StepProgress:
    """Iterator over the rows of a feed. The iterator reports the progress of slow steps."""

    def __init__(
        self,
        rows: Iterator[Row],
        shown: Shown,
        *,
        micro_batches: int,
        tokens: float,
        check: Callable[[], None],
    ) -> None:
        """Args:
        micro_batches: number of micro-batches of this rank in a step.
        tokens: average number of tokens that all ranks together compute while each rank computes
            one micro-batch.
        check: function to call before each micro-batch. The function may raise an error.
        """
        self._rows, self._shown, self._check = rows, shown, check
        self._micro_batches, self._tokens = micro_batches, tokens
        self._done = 0
        self._began = self._reported = 0.0

    def __next__(self) -> Row:
        self._check()
        now = time.monotonic()
        if self._done == 0:
            self._began = self._reported = now
        elif now - self._reported >= self._shown.seconds_within:
            self._reported = now
            self._report(now - self._began)
        self._done = (self._done + 1) % self._micro_batches
        return next(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return self

    def _report(self, seconds: float) -> None:
        left = self._micro_batches - self._done
        self._shown.within_step(
            WithinStep(
                done=self._done,
                micro_batches=self._micro_batches,
                tokens_per_second=self._done * self._tokens / seconds,
                seconds_left=left * seconds / self._done,
            )
        )
