"""What a run reports, and where. Numbers stay on the device until a line is due, and the line is read one step later: nothing waits.

Model FLOPs of a step (Chowdhery et al., PaLM, 2022, appendix B, with attention counted exactly): 6 × layers' matrices × unpadded
tokens + 12 × layers × hidden × Σ length² + 6 × the head's matrices × predicted tokens. Recomputed activations do not count. MFU is
that a second over the stated peak of all devices: the dense bf16 figure of the vendor's datasheet, for FP8 runs too.
"""

from __future__ import annotations

import json
import math
import secrets
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from schemas.models import ModelOptions
from schemas.redact import without_credentials
from trainer.checkpoints.atomic_write import write
from trainer.config import TrainOptions
from trainer.distributed.topology import Parallel
from trainer.model.esm2 import PADDED_VOCABULARY
from trainer.validate import Validation

PEAK_TFLOPS: Final = {
    "A100": 312.0,
    "H100": 989.4,
    "H200": 989.4,
    "GH200": 989.4,
    "B200": 2250.0,
    "GB200": 2500.0,
    "L40S": 362.0,
}
"""Dense bf16, SXM where there are several. The longest name that a device's name contains counts."""


def model_flops(model: ModelOptions, *, tokens: float, squares: float, predicted: float) -> float:
    """FLOPs of forward and backward. squares: Σ length²."""
    d = model.hidden_size
    layer = 4 * d * d + 2 * d * model.ffn_size
    return (
        6 * model.layers * layer * tokens
        + 12 * model.layers * d * squares
        + 6 * (d * d + d * PADDED_VOCABULARY) * predicted
    )


def peak_flops(options: TrainOptions, device: torch.device) -> float:
    """Of one device a second; 0 if unknown."""
    if options.output.peak_tflops or device.type != "cuda":
        return options.output.peak_tflops * 1e12
    name = torch.cuda.get_device_name(device)
    return (
        max(
            ((len(known), peak) for known, peak in PEAK_TFLOPS.items() if known in name),
            default=(0, 0.0),
        )[1]
        * 1e12
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of metrics. loss, perplexity and grad_norm are the step's; the rest is over the steps since the line before.

    tokens: of the run so far, unpadded. data_wait: share of time in which the device of rank 0 may have waited for buckets (see Feed).
    memory: peak of rank 0, bytes. skipped: steps of the run so far whose loss or gradient was not finite. overflow: tokens to predict that
    found no room. bad_in_a_row: the most steps skipped in a row.
    """

    step: int
    loss: float
    perplexity: float
    grad_norm: float
    learning_rate: float
    tokens: int
    tokens_per_second: float
    tokens_per_second_per_device: float
    step_seconds: float
    mfu: float | None
    data_wait: float
    memory: int
    skipped: int
    overflow: int
    bad_in_a_row: int


class Meter:
    """Gathers a step's numbers on the device, and makes a Line of them every few steps."""

    def __init__(
        self, options: TrainOptions, parallel: Parallel, *, step: int, tokens: int
    ) -> None:
        """step, tokens: of the run so far."""
        self._options, self._parallel = options, parallel
        self._peak = peak_flops(options, parallel.device)
        self._begun, self._tokens = step, tokens
        self._sums = torch.zeros(4, dtype=torch.float64, device=parallel.device)
        self._worst = torch.zeros((), dtype=torch.float64, device=parallel.device)
        self._clock = _Clock(parallel.device)
        self._waited = 0.0
        self._pending: tuple[int, float, float, Tensor] | None = (
            None  # step, rate, waited, numbers on their way to the host
        )

    def step(
        self, step: int, *, scalars: Tensor, counts: Tensor, rate: float, waited: float, flush: bool
    ) -> list[Line]:
        """Count a step. A Line comes one step after it was due, or at once with `flush`.

        Args:
            step: steps done, this one included.
            scalars: float64[4], the step's loss and gradient norm, steps that were applied so far, steps skipped in a row.
            counts: float64[4] over all ranks: predicted tokens, overflow, tokens, Σ length².
            waited: seconds the feed has waited so far.
            flush: something else than a step comes next.
        """
        self._sums += counts
        self._worst = torch.maximum(self._worst, scalars[3])
        lines = self._read()
        if flush or step % self._options.output.log_every == 0:
            numbers = torch.cat([scalars[:3], self._worst.reshape(1), self._sums])
            self._sums, self._worst = torch.zeros_like(self._sums), torch.zeros_like(self._worst)
            self._pending = (step, rate, waited, numbers.to("cpu", non_blocking=True))
            self._clock.mark()  # after the copy: whoever waits for the mark has the numbers
        return [*lines, *self._read()] if flush else lines

    def resume(self) -> None:
        """Go on after a `flush`: the time since then was not training."""
        self._clock.restart()

    def _read(self) -> list[Line]:
        if self._pending is None:
            return []
        step, rate, waited, numbers = self._pending
        self._pending = None
        seconds = self._clock.lap()
        loss, norm, applied, bad, predicted, overflow, tokens, squares = numbers.tolist()
        steps = step - self._begun
        self._begun, self._tokens = step, self._tokens + int(tokens)
        wait, self._waited = waited - self._waited, waited
        flops = model_flops(
            self._options.model, tokens=tokens, squares=squares, predicted=predicted
        )
        devices = self._parallel.world_size
        on_gpu = self._parallel.device.type == "cuda"
        line = Line(
            step=step,
            loss=loss,
            perplexity=math.exp(min(loss, 700.0)),
            grad_norm=norm,
            learning_rate=rate,
            tokens=self._tokens,
            tokens_per_second=tokens / seconds,
            tokens_per_second_per_device=tokens / seconds / devices,
            step_seconds=seconds / steps,
            mfu=flops / seconds / devices / self._peak if self._peak else None,
            data_wait=wait / seconds,
            memory=torch.cuda.max_memory_allocated() if on_gpu else 0,
            skipped=step - int(applied),
            overflow=int(overflow),
            bad_in_a_row=int(bad),
        )
        return [line]


class _Clock:
    """Time between marks, by the device's own clock on a GPU: the host runs ahead."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self.restart()

    def restart(self) -> None:
        self._last = self._now = self._read()

    def mark(self) -> None:
        self._now = self._read()

    def lap(self) -> float:
        """Seconds between the last two marks; waits until the device has reached the second, and what was copied before it."""
        if self._on_gpu:
            self._now.synchronize()
            seconds = self._last.elapsed_time(self._now) / 1e3
        else:
            seconds = self._now - self._last
        self._last = self._now
        return max(seconds, 1e-9)

    def _read(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class Report:
    """Where lines go: the terminal, OUT/metrics.jsonl, and TensorBoard and Weights & Biases if asked for. Only rank 0 has one that writes."""

    def __init__(self, options: TrainOptions, parallel: Parallel, *, step: int) -> None:
        """step: of the run so far; lines of later steps, which were written before a crash, are dropped.

        Raises:
            ValueError: TensorBoard or Weights & Biases is not installed.
        """
        self._writes = parallel.is_main
        self._console = Console(stderr=True, quiet=not self._writes)
        self._progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=self._console,
        )
        self._live = self._console.is_terminal
        self._task = self._progress.add_task("", total=options.optimizer.steps, completed=step)
        self._sinks: list[Any] = []
        if not self._writes:
            return
        out = Path(options.output.out)
        self._file = continued(out / "metrics.jsonl", step)
        if options.output.tensorboard:
            self._sinks.append(_TensorBoard(out / "tensorboard", step))
        if options.output.wandb_project:
            self._sinks.append(_WeightsAndBiases(options, out))

    def __enter__(self) -> Self:
        if self._writes and self._live:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._writes and self._live:
            self._progress.stop()
        if self._writes:
            self._file.close()
        for sink in self._sinks:
            sink.close()

    def say(self, text: str) -> None:
        """A sentence for whoever watches."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def line(self, line: Line) -> None:
        self._write("train", line.step, asdict(line))
        mfu = "" if line.mfu is None else f" · MFU {line.mfu:.1%}"
        memory = f" · {line.memory / 2**30:.1f} GiB" if line.memory else ""
        skipped = f" · {line.skipped} skipped" if line.skipped else ""
        text = f"loss {line.loss:.4f} · norm {line.grad_norm:.3f} · lr {line.learning_rate:.2e} · {line.tokens_per_second:,.0f} tokens/s{mfu}"
        text += f" · {line.step_seconds * 1e3:,.0f} ms · data {line.data_wait:.2%}{memory}{skipped}"
        if self._live:
            self._progress.update(self._task, completed=line.step, description=text)
        else:
            self.say(f"step {line.step:,} · {text}")

    def validation(self, step: int, found: Validation) -> None:
        self._write(
            "valid",
            step,
            {
                "loss": found.loss,
                "perplexity": found.perplexity,
                "accuracy": found.accuracy,
                "tokens": found.tokens,
            },
        )
        self.say(
            f"step {step:,} · validation: loss {found.loss:.4f} · perplexity {found.perplexity:.3f} · accuracy {found.accuracy:.2%} of {found.tokens:,} tokens"
        )

    def _write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        if not self._writes:
            return
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }
        self._file.write(json.dumps({"kind": kind, "step": step, **finite}) + "\n")
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


def continued(path: Path, step: int) -> TextIO:
    """A file of JSON lines, open at its end, without lines of steps after `step`, or one that a crash cut off."""
    kept = []
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except (ValueError, TypeError, KeyError, RecursionError):
                break
    write(path, "".join(kept))
    return open(path, "a")


class _TensorBoard:
    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError(
                "--tensorboard needs the package tensorboard: pip install tensorboard"
            ) from error
        self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, values: dict[str, Any], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _WeightsAndBiases:
    def __init__(self, options: TrainOptions, out: Path) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ValueError(
                "--wandb-project needs the package wandb: pip install wandb"
            ) from error
        # one run there for one run here: its id is kept in the run's folder
        identity = out / "wandb-id"
        if not identity.exists():
            identity.write_text(secrets.token_hex(8))
        sys.argv = [without_credentials(word) for word in sys.argv]  # which wandb sends too
        project, config = options.output.wandb_project, asdict(options.public())
        self._run = wandb.init(
            project=project,
            name=out.name,
            id=identity.read_text(),
            resume="allow",
            dir=str(out),
            config=config,
        )

    def write(self, values: dict[str, Any], step: int) -> None:
        self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()
