"""Profiler trace of a few steps, for chrome://tracing or Perfetto."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, schedule

from trainer.config import TrainOptions
from trainer.distributed.topology import Topology


class _Off:
    def step(self) -> None: ...


@contextmanager
def profiler(options: TrainOptions, topology: Topology) -> Iterator[Any]:
    """Yield an object whose method `step` must be called after each step.

    With --profile, rank 0 writes a trace of the 11th to the 13th step of this process to
    OUT/trace.json. If training ends after 10 to 12 steps, the trace has fewer than three steps.
    """
    if not (options.output.profile and topology.is_main):
        yield _Off()
        return
    activities = [ProfilerActivity.CPU] + (
        [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    )
    path = Path(options.output.out) / "trace.json"
    plan = schedule(wait=8, warmup=2, active=3, repeat=1)
    with torch.profiler.profile(
        activities=activities,
        schedule=plan,
        on_trace_ready=lambda trace: trace.export_chrome_trace(str(path)),
    ) as trace:
        yield trace
    if not path.exists():
        print(
            f"{path} was not written: a trace begins with the 11th step after the start or resume, "
            "and training ended earlier",
            file=sys.stderr,
        )
