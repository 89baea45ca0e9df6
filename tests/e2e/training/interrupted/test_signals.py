"""Runs that get a signal or Ctrl-C save a checkpoint and end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.processes.ranks import Job
from tests.helpers.processes.runs import arguments, await_step, losses, torchrun, train
from trainer.export import export
from trainer.feed import Feed
from trainer.run import TrainingRun

LONG = "THDPACK_LONG" in os.environ


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_run_that_gets_a_signal_saves_a_checkpoint_and_exits_with_0(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    out = tmp_path / "run"

    def send() -> None:
        while not (out / "metrics.jsonl").exists() or max(losses(out), default=0) < 3:
            time.sleep(0.005)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    train(many_shards, out, "--checkpoint-every", "0", "--validate-every", "0", steps=100_000)
    sender.join()
    assert "run the same command to resume" in capsys.readouterr().err
    last = max(losses(out))
    assert (out / "checkpoints" / "latest").read_text().strip() == f"step-{last:08}"
    assert not (out / "export").exists()


@pytest.mark.parametrize("steps", [2, 100])
def test_a_signal_during_a_validation_ends_the_run_without_another_step_or_an_export(
    many_shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    steps: int,
) -> None:
    monkeypatch.setattr(TrainingRun, "validate", signalled_before(TrainingRun.validate))
    train(many_shards, tmp_path / "run", "--validate-every", "2", steps=steps)
    rest = "that was the last step: run the same command to export the model"
    rest = "run the same command to resume" if steps > 2 else rest
    assert f"stopped by a signal after step 2; {rest}" in capfd.readouterr().err
    assert (tmp_path / "run/checkpoints/latest").read_text().strip() == "step-00000002"
    assert not (tmp_path / "run/export").exists()


def test_after_a_signal_a_validation_that_is_due_waits_until_the_run_resumes(
    many_shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(Feed, "__next__", signalled_before(Feed.__next__))
    train(many_shards, out, "--validate-every", "1", steps=2)
    assert (list(losses(out)), losses(out, "valid")) == ([1], {})
    monkeypatch.undo()
    train(many_shards, out, "--validate-every", "1", steps=2)
    assert list(losses(out, "valid")) == [1, 2]


def test_a_signal_during_the_export_does_not_stop_it_and_the_message_says_so(
    many_shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("trainer.train.export", signalled_before(export))
    train(many_shards, tmp_path / "run", steps=1)
    said = capfd.readouterr().err
    assert "SIGTERM received: stopping after the export of the model, which completes" in said
    assert "with a checkpoint" not in said
    assert "done: " in said


def signalled_before(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, except that each call first sends SIGTERM to this process."""

    def signalled(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return function(*arguments)

    return signalled


def test_after_a_signal_the_time_of_the_remaining_steps_is_not_printed(
    many_shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("trainer.monitoring.run_time._ENOUGH_SECONDS", 0.0)
    monkeypatch.setattr("trainer.monitoring.run_time._SLOW_STEPS", 0)
    monkeypatch.setattr(Feed, "__next__", signalled_before(Feed.__next__))
    train(many_shards, tmp_path / "run", steps=100)
    said = capfd.readouterr().err
    assert "SIGTERM received: stopping after this step, with a checkpoint" in said
    assert "stopped by a signal after step 1; run the same command to resume" in said
    assert "more step" not in said


SLOW = """
import sys, time
from trainer import feed
from trainer.train import main
advance = feed.Feed.__next__
def slow(rows):
    rows.delivered = getattr(rows, "delivered", 0) + 1
    if rows.delivered > 4:
        time.sleep(0.5)
    return advance(rows)
feed.Feed.__next__ = slow
main(sys.argv[1:])
"""
"""Program of a run in which the first two steps are fast and the later steps are slow."""

SIGNALLED = """
import os, sys
from trainer import feed
from trainer.train import main
number, micro_batch = map(int, sys.argv[1:3])
advance = feed.Feed.__next__
def signalled(rows):
    rows.delivered = getattr(rows, "delivered", 0) + 1
    if rows.delivered == micro_batch:
        os.kill(os.getpid(), number)
    return advance(rows)
feed.Feed.__next__ = signalled
main(sys.argv[3:])
"""
"""Program of a rank. The rank sends itself a signal before it reads a micro-batch. The first two
arguments of the program are the number of the signal and the number of the micro-batch, counted
from 1."""


@pytest.mark.parametrize(
    ("number", "ranks"), [(signal.SIGTERM, 1), (signal.SIGINT, 1), (signal.SIGTERM, 2)]
)
def test_after_a_signal_in_the_last_step_the_same_command_validates_and_exports(
    many_shards: Path, tmp_path: Path, number: signal.Signals, ranks: int
) -> None:
    out = tmp_path / "run"
    batch = ("--buckets-per-step", str(2 * ranks), "--validate-every", "0")
    # Each rank has two micro-batches per step, so the signal comes in step 4.
    words = [str(int(number)), "7"]
    words += arguments(many_shards, out, *batch, steps=4)
    with Job(SIGNALLED, words, ranks=ranks) as job:
        job.finish()
    assert "stopped by a signal after step 4; that was the last step: run the same" in job.said
    assert losses(out, "valid") == {}
    assert not (out / "export").exists()
    for _ in range(2):  # the validation is not repeated
        with Job(SIGNALLED, words, ranks=ranks) as job:
            assert "done: " in job.finish()
        assert (out / "metrics.jsonl").read_text().count('"valid", "step": 4') == 1
    assert (out / "export" / "model.safetensors").exists()


@pytest.mark.parametrize(("ranks", "again"), [(1, 1), (2, 2), (2, 1)])
def test_ctrl_c_is_acknowledged_at_once_and_a_second_one_aborts_the_step(
    many_shards: Path, tmp_path: Path, ranks: int, again: int
) -> None:
    """Args:
    again: number of ranks that get a second SIGINT.
    """
    out = tmp_path / "run"
    batch = ("--buckets-per-step", str(2 * ranks), "--validate-every", "0", "--warmup-steps", "0")
    often = ("--checkpoint-every", "1")
    with Job(SLOW, arguments(many_shards, out, *batch, *often, steps=99), ranks=ranks) as job:
        await_step(job, out, 2)
        while not (out / "checkpoints" / "latest").exists():  # checkpoints are asynchronous
            assert job.poll() is None, job.said
            time.sleep(0.01)
        for rank in job.ranks:
            rank.send(signal.SIGINT)
        while "Ctrl-C again stops now" not in job.said:
            assert job.poll() is None, job.said
            time.sleep(0.01)
        time.sleep(0.6)  # two signals within half a second count as one Ctrl-C
        for rank in job.ranks[:again]:
            rank.send(signal.SIGINT)
        job.wait()
    assert [rank.returncode for rank in job.ranks] == [130] * ranks, job.said
    assert "does not answer" not in job.said
    assert "interrupted without finishing the step; step-0000000" in job.said
    last = int((out / "checkpoints" / "latest").read_text().strip()[5:])
    train(many_shards, out, *batch, *often, steps=last + 1)
    assert max(losses(out)) == last + 1


def test_a_signal_to_torchrun_ends_all_ranks_at_the_same_step(
    many_shards: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    flags = (
        "--standalone",
        "--nproc-per-node",
        "2",
        "--signals-to-handle",
        "SIGTERM,SIGINT,SIGUSR1",
    )
    with torchrun(
        many_shards,
        out,
        "--checkpoint-every",
        "0",
        "--validate-every",
        "0",
        flags=flags,
        forks=not LONG,
        steps=100_000,
    ) as job:
        await_step(job, out, 3)
        job.ranks[0].send(signal.SIGUSR1)
        job.wait()  # torchrun itself exits with 1 after a signal
    assert "run the same command to resume" in job.said
    assert "SIGUSR1 received: stopping after the next step, with a checkpoint\n" in job.said
    assert "Ctrl-C" not in job.said
    last = max(losses(out))
    assert (out / "checkpoints" / "latest").read_text().strip() == f"step-{last:08}"
    assert not list((out / "checkpoints").glob("*.partial"))
