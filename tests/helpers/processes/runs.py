"""Training runs for tests: in this process, on several forked ranks, or under torchrun. The module
also has functions that read and copy the folders of runs.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import torch

from tests.helpers.processes.ranks import GIVE_UP_SECONDS, TRAIN, Job
from trainer.train import main

OPTIONS = (
    "--layers",
    "2",
    "--hidden-size",
    "32",
    "--heads",
    "4",
    "--ffn-size",
    "64",
    "--buckets-per-step",
    "2",
    "--log-every",
    "1",
)
STEPS = 16
EVERY = 4
ROUNDING = 1e-5
"""Tolerance for differences of losses between runs on different numbers of ranks.

| cause of a difference | size |
|---|---|
| rounding of a loss of 3 to fp32 | 2e-7 |
| different rounding in each of 16 steps (measured) | 1e-6 at most |
| another bucket or mask, which tests must detect | 1e-2 |
"""
EACH = """
import json, sys
from trainer.config import parse
from trainer.distributed.topology import process_group
from trainer.train import train
with process_group() as topology:
    for arguments in json.loads(sys.argv[1]):
        train(parse(arguments), topology)
"""
"""Python source code that trains several runs one after another in the same processes. sys.argv[1]
is a JSON list of the runs' arguments.
"""
TORCHRUN = "import sys; from torch.distributed.run import main; main(sys.argv[1:])"
"""Python source code that runs an unchanged torchrun, which starts each rank as a new process."""
WITH_FORKS = """
import sys
import torch.distributed.run
from torch.distributed.elastic.multiprocessing.api import MultiprocessContext
from torch.distributed.launcher.api import elastic_launch
from trainer.train import main
close = MultiprocessContext._close
def close_finished(context, *arguments, **options):
    context._worker_finished_event.set()
    close(context, *arguments, **options)
MultiprocessContext._close = close_finished
def launch(config, entrypoint):
    config.start_method = "fork"
    return lambda *words: elastic_launch(config, main)([*words[words.index("trainer.train") + 1 :]])
torch.distributed.run.elastic_launch = launch
torch.distributed.run.main(sys.argv[1:])
"""
"""Python source code that runs torchrun with forked ranks, which need not import torch again.

A forked rank that has finished waits for an event of torchrun before it exits. After a signal,
torchrun would not set this event, and would kill such ranks 30 s later. The patch of `_close` sets
the event immediately.
"""


def arguments(data: Path | str, out: Path, *options: str, steps: int = STEPS) -> list[str]:
    """Return the arguments of a training run. `options` replace the defaults of the tests."""
    every = ("--checkpoint-every", str(EVERY), "--validate-every", str(EVERY), "--keep-last", "9")
    common = [*OPTIONS, "--data", str(data), "--out", str(out), "--steps", str(steps), *every]
    kept = [
        word
        for flag, value in zip(common[::2], common[1::2], strict=True)
        if flag not in options or (flag == "--data" and "=" in str(data))
        for word in (flag, value)
    ]
    return ["esm2-tiny", *kept, *options]


def train(data: Path | str, out: Path, *options: str, steps: int = STEPS) -> Path:
    """Start or resume a run in this process, and train until the last step. Return `out`."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        main(arguments(data, out, *options, steps=steps))
    finally:
        torch.set_num_threads(threads)
    return out


def start(data: Path | str, out: Path, *options: str, ranks: int = 1, steps: int = STEPS) -> Job:
    """Start a run in forked processes, one per rank."""
    return Job(TRAIN, arguments(data, out, *options, steps=steps), ranks=ranks)


def torchrun(
    data: Path,
    out: Path,
    *options: str,
    flags: tuple[str, ...],
    forks: bool = False,
    steps: int = STEPS,
) -> Job:
    """Start a run under torchrun.

    Args:
        flags: flags of torchrun.
        forks: let torchrun fork its ranks instead of starting new processes.
    """
    return Job(
        WITH_FORKS if forks else TORCHRUN,
        [*flags, "-m", "trainer.train", *arguments(data, out, *options, steps=steps)],
    )


def losses(out: Path, kind: str = "train") -> dict[int, float]:
    # the part after the last newline may be an incomplete line
    whole_lines = (out / "metrics.jsonl").read_text().rpartition("\n")[0]
    lines = [json.loads(line) for line in whole_lines.splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == kind}


def cut(run: Path, out: Path, step: int) -> Path:
    """Copy a run to `out`, without the checkpoints that are later than `step`."""
    shutil.copytree(run, out)
    for checkpoint in (out / "checkpoints").glob("step-*"):
        if int(checkpoint.name[5:]) > step:
            shutil.rmtree(checkpoint)
    (out / "checkpoints" / "latest").write_text(f"step-{step:08}\n")
    return out


def await_step(job: Job, out: Path, step: int) -> None:
    """Wait until a run has logged a step.

    Raises:
        AssertionError: the run ends before that step, or hangs. The message has its output.
    """
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while job.poll() is None and time.monotonic() < deadline:
        if (out / "metrics.jsonl").exists() and max(losses(out), default=0) >= step:
            return
        time.sleep(0.005)
    raise AssertionError(f"the run never logged step {step}: {job.said}")
