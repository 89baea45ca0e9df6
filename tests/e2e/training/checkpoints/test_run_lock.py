"""Only one run at a time trains into a folder. A dead run does not block the folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

import trainer.checkpoints.run_lock
from tests.helpers.processes.ranks import Job
from tests.helpers.processes.runs import arguments, await_step, cut, losses, start, train
from trainer.checkpoints.run_lock import LOCK, Holder, take

ELSEWHERE = Holder(
    "node7", 1, "2026-01-01 00:00:00+00:00", "another machine", "1", "/shared/run", "0"
)
LONG_AGO = 1_000_000_000
SHORT = ("--warmup-steps", "0", "--validate-every", "0")
"""Options of a run of one step."""
BEATS_OFTEN = """
import sys, trainer.checkpoints.run_lock
trainer.checkpoints.run_lock.EVERY_SECONDS = 0.05
from trainer.train import main
main(sys.argv[1:])
"""


def left_by(holder: Holder, out: Path) -> Path:
    out.mkdir(exist_ok=True)
    (out / LOCK).write_bytes(msgspec.json.encode(holder))
    return out / LOCK


def test_a_second_run_into_a_folder_is_refused_and_the_first_continues(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with start(
        many_shards, out, "--checkpoint-every", "0", "--validate-every", "0", ranks=2, steps=100_000
    ) as job:
        await_step(job, out, 2)
        with pytest.raises(SystemExit) as stopped:
            train(many_shards, out)
        assert stopped.value.code == 1
        assert (
            f"another run writes here (process {job.pid} on {socket.gethostname()}, since 20"
            in capsys.readouterr().err
        )
        await_step(job, out, max(losses(out)) + 3)
        for rank in job.ranks:
            rank.send(signal.SIGTERM)
        job.finish()
    assert not (out / LOCK).exists()


def test_a_new_run_can_use_the_folder_of_a_killed_run_at_once(
    many_shards: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with start(many_shards, out) as job:
        await_step(job, out, 5)
    assert (out / LOCK).exists()
    train(many_shards, out)
    assert losses(out) == losses(whole)
    assert not (out / LOCK).exists()


def test_a_refused_run_frees_its_folder(many_shards: Path, whole: Path, tmp_path: Path) -> None:
    out = cut(whole, tmp_path / "run", 8)
    for _ in range(2):
        with pytest.raises(SystemExit):
            train(many_shards, out, "--seed", "5")
        assert not (out / LOCK).exists()


def test_a_lock_with_an_old_heartbeat_is_taken_over(many_shards: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    os.utime(left_by(ELSEWHERE, out), (LONG_AGO, LONG_AGO))
    train(many_shards, out, *SHORT, steps=1)


def test_a_lock_whose_heartbeat_stops_is_taken_over(
    many_shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = left_by(ELSEWHERE, tmp_path / "run")
    monkeypatch.setattr(trainer.checkpoints.run_lock, "STALE_SECONDS", 1.0)
    # the lock looks fresh at the start, however slowly this process runs
    monkeypatch.setattr(trainer.checkpoints.run_lock, "_now", lambda folder: path.stat().st_mtime)
    train(many_shards, tmp_path / "run", *SHORT, steps=1)
    assert "was held by process 1 on node7" in capsys.readouterr().err


def test_the_error_for_a_lock_with_a_live_heartbeat_names_its_holder(
    tmp_path: Path,
) -> None:
    path = left_by(ELSEWHERE, tmp_path / "run")
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.05):
            os.utime(path)

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        with pytest.raises(
            trainer.checkpoints.run_lock.LockError,
            match=r"another run writes here .process 1 on node7, since 2026-01-01",
        ):
            take(tmp_path / "run")
    finally:
        ended.set()
        beating.join()


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 4000, b"\xff", b'{"pid": "x"}'])
def test_an_unreadable_lock_with_an_old_heartbeat_is_taken_over(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / LOCK).write_bytes(content)
    os.utime(tmp_path / LOCK, (LONG_AGO, LONG_AGO))
    assert take(tmp_path) == (tmp_path / LOCK).read_bytes()


def test_a_run_takes_over_a_copy_of_a_locked_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer.checkpoints.run_lock, "STALE_SECONDS", 0.5)
    take(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    take(tmp_path / "copy")
    with pytest.raises(trainer.checkpoints.run_lock.LockError, match=f"process {os.getpid()} on"):
        take(tmp_path / "run")


def test_a_run_ends_when_another_run_takes_over_its_folder(
    many_shards: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with Job(
        BEATS_OFTEN,
        arguments(
            many_shards, out, "--validate-every", "0", "--checkpoint-every", "0", steps=100_000
        ),
    ) as job:
        await_step(job, out, 2)
        content = msgspec.json.encode(ELSEWHERE)
        (out / "other").write_bytes(content)
        os.replace(out / "other", out / LOCK)
        assert job.wait() == 1
    assert "was taken over by another run (process 1 on node7" in job.said
    assert (out / LOCK).read_bytes() == content  # the other run's lock is not removed


def test_exactly_one_of_many_runs_takes_over_the_lock_of_a_dead_run(tmp_path: Path) -> None:
    os.utime(left_by(ELSEWHERE, tmp_path / "run"), (LONG_AGO, LONG_AGO))
    together, won = threading.Barrier(8), []

    def begin() -> None:
        together.wait()
        with suppress(trainer.checkpoints.run_lock.LockError):
            won.append(take(tmp_path / "run"))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(tmp_path / "run" / LOCK).read_bytes()] == won
    assert [path.name for path in (tmp_path / "run").iterdir()] == [LOCK]
