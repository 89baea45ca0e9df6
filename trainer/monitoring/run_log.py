"""Log of a run: terminal, OUT/metrics.jsonl, and experiment trackers."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from trainer.config import TrainOptions
from trainer.distributed.topology import Topology
from trainer.monitoring.json_lines import open_json_lines
from trainer.monitoring.meter import StepMetrics
from trainer.monitoring.run_time import RemainingTime
from trainer.monitoring.step_progress import WithinStep
from trainer.monitoring.trackers import TensorBoard, WeightsAndBiases
from trainer.scores.evaluation import Evaluated
from trainer.validate import Validation

_LARGE: Final = 1e6
_PLAIN_SECONDS: Final = 30.0
"""Minimum seconds between two progress lines of slow steps, if there is no terminal."""
_SPEED_SECONDS: Final = 600.0
"""The bar shows the remaining time at the speed of these last seconds. With rich's 30 seconds, it
would show none if a step takes longer."""


class RunLog:
    """Log of messages and metrics. The terminal shows messages and metrics. Metrics are also
    written to OUT/metrics.jsonl and, if the options say so, to TensorBoard and Weights & Biases.

    Every rank has a RunLog. Only rank 0 writes.
    """

    def __init__(self, options: TrainOptions, topology: Topology, *, step: int) -> None:
        """Open the log. Remove lines of steps after `step`, which an interrupted run may have
        written.

        Args:
            step: number of steps of the run so far.
        """
        self._writes = topology.is_main
        self._console = Console(stderr=True, quiet=not self._writes)
        # in a narrow terminal, only the description is cut off
        self._progress = Progress(
            TextColumn("{task.fields[unit]}"),
            MofNCompleteColumn(),
            BarColumn(min(40, self._console.width // 6)),
            TimeRemainingColumn(),
            TextColumn(
                "{task.description}",
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            console=self._console,
            expand=True,
            speed_estimate_period=_SPEED_SECONDS,
        )
        self._live = self._console.is_terminal
        self._task = self._progress.add_task(
            "", total=options.optimizer.steps, completed=step, unit="step"
        )
        self._step_task: TaskID | None = None
        self._steps, self._said = options.optimizer.steps, time.monotonic()
        self._remaining = RemainingTime(self._steps)
        self.seconds_within = (
            math.inf if not self._writes else 0.5 if self._live else _PLAIN_SECONDS
        )
        self._sinks: list[Any] = []
        if not self._writes:
            return
        out = Path(options.output.out)
        self._path = out / "metrics.jsonl"
        self._file = open_json_lines(self._path, step)
        if options.output.tensorboard:
            self._sinks.append(TensorBoard(out / "tensorboard", step))
        if options.output.wandb_project:
            self._sinks.append(WeightsAndBiases(options, out))

    def __enter__(self) -> Self:
        if self._writes and self._live:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._writes and self._live:
            self._progress.stop()
        if self._writes:
            self._file.close()
        for sink in self._sinks:
            sink.close()

    def say(self, text: str) -> None:
        """Print a message to the terminal."""
        self._said = time.monotonic()
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def step(self, step: int) -> None:
        """Show that a step has ended: in the bar on a terminal, else with a line if 30 seconds have
        passed since the last one."""
        self._remaining.step(step)
        if self._live:
            self._progress.update(self._task, completed=step)
        elif time.monotonic() - self._said >= _PLAIN_SECONDS:
            self.say(f"step {step:,} of {self._steps:,} is done{self._remaining.text()}")

    def metrics(self, line: StepMetrics) -> None:
        self._write("train", line.step, asdict(line))
        mfu = "" if line.mfu is None else f" · MFU {line.mfu:.1%}"
        memory = f" · {line.memory / 2**30:.1f} GiB" if line.memory else ""
        skipped = f" · {line.skipped} skipped" if line.skipped else ""
        text = (
            f"loss {line.loss:.4f} · norm {line.grad_norm:.3f} · lr {line.learning_rate:.2e} · "
            f"{line.tokens_per_second:,.0f} tokens/s{mfu}"
        )
        text += f" · {line.step_seconds * 1e3:,.0f} ms · data {line.data_wait:.2%}{memory}{skipped}"
        if self._live:
            self._progress.update(self._task, completed=line.step, description=text)
        else:
            self.say(f"step {line.step:,} · {text}{self._remaining.text()}")

    def within_step(self, found: WithinStep) -> None:
        """Show the progress of a slow step: a second bar on a terminal, else a line."""
        rate = f"{found.tokens_per_second:,.0f} tokens/s"
        if not self._live:
            self.say(
                f"within a step · {found.done} of {found.micro_batches} micro-batches · {rate} · "
                f"about {found.seconds_left:,.0f} s left of this step"
            )
            return
        if self._step_task is None:
            self._step_task = self._progress.add_task("", total=1, unit="micro-batch")
        self._progress.update(
            self._step_task, completed=found.done, total=found.micro_batches, description=rate
        )

    def validation(self, step: int, found: Validation, split: str) -> None:
        """Log the result of a validation. For a mixture, also log the result of each dataset, in
        lines of the kind SPLIT/NAME.
        """
        of_split = "" if split == "valid" else f" on the {split} split"
        self._validation(step, found, split, f"validation{of_split}")
        for name, each in found.datasets:
            self._validation(step, each, f"{split}/{name}", f"{name}{of_split}")

    def _validation(self, step: int, found: Validation, kind: str, name: str) -> None:
        values = {
            "loss": found.loss,
            "perplexity": found.perplexity,
            "accuracy": found.accuracy,
            "tokens": found.tokens,
        }
        self._write(kind, step, values)
        perplexity = _readable(found.perplexity)
        self.say(
            f"step {step:,} · {name}: loss {found.loss:.4f} · perplexity {perplexity} · accuracy "
            f"{found.accuracy:.2%} of {found.tokens:,} tokens"
        )

    def evaluation(self, step: int, name: str, found: Evaluated) -> None:
        """Log the result of an evaluation; see `evaluation_kind`."""
        self._write(evaluation_kind(name), step, dict(found.values))
        self.say(f"step {step:,} · {name}: {found.text}")

    def has_line(self, step: int, kind: str) -> bool:
        """Return whether metrics.jsonl has a line of this kind for a step. Call this on rank 0
        only."""
        return any(True for _ in self._lines(step, kind))

    def has_validation(self, step: int, split: str) -> bool:
        """Return whether metrics.jsonl has a validation of a step on a split, with a finite loss.
        Call this on rank 0 only.
        """
        return any(line.get("loss") is not None for line in self._lines(step, split))

    def _lines(self, step: int, kind: str) -> Iterator[dict[str, Any]]:
        for line in map(json.loads, self._path.read_text().splitlines()):
            if line.get("kind") == kind and line["step"] == step:
                yield line

    def _write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        if not self._writes:
            return
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }
        line = {"kind": kind, "step": step, "time": _now(), **finite}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        for sink in self._sinks:
            sink.write(
                {
                    f"{kind}/{name}": value
                    for name, value in values.items()
                    if name != "step" and value is not None
                },
                step,
            )


def evaluation_kind(name: str) -> str:
    """Return the `kind` of the lines of an evaluation in metrics.jsonl."""
    return f"evaluate/{name}"


def _readable(value: float) -> str:
    """Return a number with three decimals, or a large one with an exponent."""
    return f"{value:.1e}" if value >= _LARGE else f"{value:.3f}"


def _now() -> str:
    """Return the time in UTC, such as 2025-03-01T12:30:00+00:00."""
    return datetime.now(UTC).isoformat(timespec="seconds")
