"""Metrics of training steps, summed on the device.

The host reads the metrics of a step one step later, to avoid waiting for the device.
"""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer.config import TrainOptions
from trainer.distributed.topology import Topology
from trainer.monitoring.flops import model_flops, peak_flops
from trainer.validate import perplexity


@dataclass(frozen=True, kw_only=True, slots=True)
class StepMetrics:
    """One line of metrics. A line covers the steps since the previous line.

    Values of the last step:
    step: number of the step, counted from 1.
    loss, perplexity: mean loss over the predicted tokens of the global batch, in nats, and
        exp(loss).
    grad_norm: gradient norm before clipping.
    learning_rate: learning rate of the step.
    epoch: epoch of the step's last bucket, counted from 0. An epoch of a mixture ends when one of
        its datasets is about to repeat for the first time.

    Values since the start of the run:
    tokens: number of tokens, without padding.
    skipped: number of steps that were skipped, because the loss or gradient was not finite.

    Values since the previous line:
    tokens_per_second, tokens_per_second_per_device: tokens per second, without padding, of all
        devices together and of one device on average.
    step_seconds: mean time per step, in seconds.
    mfu: model FLOP/s utilization (flops.py); None if the peak of the device is unknown.
    data_wait: share of time in which the device of rank 0 may have waited for buckets (see Feed).
    overflow: number of tokens to predict that were left out, because `Masked.index` is full.
    bad_in_a_row: largest number of steps skipped in a row.

    Value since the start of this process:
    memory: peak memory of the device of rank 0, in bytes; 0 on a CPU.
    """

    step: int
    loss: float
    perplexity: float
    grad_norm: float
    learning_rate: float
    epoch: int
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
    """Sums the counts of steps on the device. Returns a line of metrics every --log-every steps."""

    def __init__(
        self,
        options: TrainOptions,
        topology: Topology,
        *,
        step: int,
        tokens: int,
        epoch_buckets: Sequence[int],
    ) -> None:
        """Args:
        step: number of steps of the run so far.
        tokens: number of tokens of the run so far, without padding.
        epoch_buckets: number of buckets in each of the first epochs; later epochs repeat them.
        """
        self._options, self._topology = options, topology
        self._peak = peak_flops(options, topology.device)
        self._begun, self._tokens = step, tokens
        self._epoch_buckets = epoch_buckets
        self._sums = torch.zeros(4, dtype=torch.float64, device=topology.device)
        self._worst = torch.zeros((), dtype=torch.float64, device=topology.device)
        self._clock = _Clock(topology.device)
        self._waited = 0.0
        self._pending: tuple[int, float, float, Tensor] | None = (
            None  # step, learning rate, Feed.waited, and the tensor that is copied to the host
        )

    def step(
        self, step: int, *, scalars: Tensor, counts: Tensor, rate: float, waited: float, flush: bool
    ) -> list[StepMetrics]:
        """Count a step, and return the lines of metrics that are ready.

        A line is due every --log-every steps. Without `flush`, a line is returned one step later.

        Args:
            step: number of steps of the run so far, including this step.
            scalars: float64[4], the first result of `Step`.
            counts: float64[4], the second result of `Step`.
            rate: learning rate of the step.
            waited: `Feed.waited`, in seconds.
            flush: True to return the line of this step immediately, before a validation or a save.
        """
        self._sums += counts
        self._worst = torch.maximum(self._worst, scalars[3])
        lines = self._read()
        if flush or step % self._options.output.log_every == 0:
            numbers = torch.cat([scalars[:3], self._worst.reshape(1), self._sums])
            self._sums, self._worst = torch.zeros_like(self._sums), torch.zeros_like(self._worst)
            self._pending = (step, rate, waited, numbers.to("cpu", non_blocking=True))
            # the mark follows the copy: when the device has reached the mark, the copy is complete
            self._clock.mark()
        return [*lines, *self._read()] if flush else lines

    def resume(self) -> None:
        """Restart the clock after a validation or a save, whose time does not count as training."""
        self._clock.restart()

    def _read(self) -> list[StepMetrics]:
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
        devices = self._topology.world_size
        on_gpu = self._topology.device.type == "cuda"
        line = StepMetrics(
            step=step,
            loss=loss,
            perplexity=perplexity(loss),
            grad_norm=norm,
            learning_rate=rate,
            epoch=epoch_of(step * self._options.data.buckets_per_step - 1, self._epoch_buckets),
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


def epoch_of(position: int, epoch_buckets: Sequence[int]) -> int:
    """Return the epoch of a position in the global order. Both are counted from 0.

    Args:
        epoch_buckets: number of buckets in each of the first epochs; later epochs repeat them.
    """
    cycles, rest = divmod(position, sum(epoch_buckets))
    ends = list(itertools.accumulate(epoch_buckets))
    return cycles * len(ends) + bisect.bisect_right(ends, rest)


class _Clock:
    """Measures the time between marks. On a GPU, CUDA events measure the time, because the host
    runs ahead of the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self.restart()

    def restart(self) -> None:
        self._last = self._now = self._read()

    def mark(self) -> None:
        self._now = self._read()

    def lap(self) -> float:
        """Return the seconds between the last two marks. First wait until the device has reached
        the second mark and has completed the copies launched before it.
        """
        if self._on_gpu:
            self._now.synchronize()
            seconds = float(self._last.elapsed_time(self._now)) / 1e3
        else:
            seconds = float(self._now - self._last)
        self._last = self._now
        return max(seconds, 1e-9)

    def _read(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
