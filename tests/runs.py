"""Runs of the trainer as users start them, in this process or under torchrun, and what they leave behind."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch

from tests.conftest import REPO, environment
from trainer.train import main

OPTIONS = ("--layers", "2", "--hidden-size", "32", "--heads", "4", "--ffn-size", "64", "--buckets-per-step", "4", "--log-every", "1")
STEPS = 16
EVERY = 4


def arguments(data: Path, out: Path, *options: str, steps: int = STEPS) -> list[str]:
    run = ["--data", str(data), "--out", str(out), "--steps", str(steps), "--checkpoint-every", str(EVERY), "--validate-every", str(EVERY)]
    return ["esm2-tiny", *OPTIONS, *run, "--keep-last", "9", *options]


def train(data: Path, out: Path, *options: str, steps: int = STEPS) -> Path:
    """A run in this process, from start or checkpoint to end."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        main(arguments(data, out, *options, steps=steps))
    finally:
        torch.set_num_threads(threads)
    return out


def start(data: Path, out: Path, *options: str, ranks: int = 1, torchrun: tuple[str, ...] = (), steps: int = STEPS) -> subprocess.Popen[str]:
    """A run in processes of its own, under torchrun."""
    launcher = [sys.executable, "-m"]
    if torchrun or ranks > 1:
        node = [] if "--nnodes" in torchrun else ["--standalone", "--nproc-per-node", str(ranks)]
        launcher += ["torch.distributed.run", *node, *torchrun, "-m"]
    command = [*launcher, "trainer.train", *arguments(data, out, *options, steps=steps)]
    env = {**environment(), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=REPO, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def finish(process: subprocess.Popen[str]) -> str:
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 0, said
    return said


def losses(out: Path, kind: str = "train") -> dict[int, float]:
    whole_lines = (out / "metrics.jsonl").read_text().rpartition("\n")[0]  # the last may be under way
    lines = [json.loads(line) for line in whole_lines.splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == kind}


def cut(run: Path, out: Path, step: int) -> Path:
    """A copy of a run as it was right after the checkpoint of a step."""
    shutil.copytree(run, out)
    for checkpoint in (out / "checkpoints").glob("step-*"):
        if int(checkpoint.name[5:]) > step:
            shutil.rmtree(checkpoint)
    (out / "checkpoints" / "latest").write_text(f"step-{step:08}\n")
    return out


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def await_step(process: subprocess.Popen[str], out: Path, step: int) -> None:
    deadline = time.monotonic() + 100
    while process.poll() is None and time.monotonic() < deadline:
        if (out / "metrics.jsonl").exists() and max(losses(out), default=0) >= step:
            return
        time.sleep(0.005)
    raise AssertionError(f"never came to step {step}: {process.communicate()[0] if process.poll() is not None else 'too slow'}")
