"""Warn if the training loss shows that a run has diverged.

Steps whose loss is not finite are skipped, and too many of them end the run (--max-bad-steps). A
run that diverges may also keep a finite loss, and would end without an error.
"""

from __future__ import annotations

import math
from typing import Final

from schemas.vocabulary import ESM2
from trainer.config import OptimizerOptions
from trainer.monitoring.meter import StepMetrics

GUESS: Final = math.log(len(ESM2))
"""Loss of a model that gives all tokens the same probability, in nats."""
_LIMIT: Final = 2 * GUESS
"""A larger loss is a sign of divergence. A new model begins near GUESS, and learns from there."""


class Divergence:
    """Watches the lines of metrics of a process."""

    def __init__(self, options: OptimizerOptions) -> None:
        self._options = options
        self._warned = False
        self._last = 0.0

    def warning(self, line: StepMetrics) -> str:
        """Return a warning for the first line whose loss is not finite or too large, else ""."""
        self._last = line.loss
        if self._warned or line.loss <= _LIMIT:
            return ""
        self._warned = True
        return self._text(f"step {line.step:,}", "the training probably diverges")

    def summary(self) -> str:
        """Return a warning for the end of the run if the last line has such a loss, else ""."""
        return "" if self._last <= _LIMIT else self._text("the last step", "this model is useless")

    def _text(self, step: str, conclusion: str) -> str:
        rate, warmup = self._options.learning_rate, self._options.warmup
        return (
            f"warning: the loss of {step} is {self._last:,.1f}, but a random guess has "
            f"{GUESS:.1f}: {conclusion}. Start again in another --out with a lower --learning-rate "
            f"(it is {rate:g}) or a longer warm-up (--warmup-steps is {warmup:,})"
        )
