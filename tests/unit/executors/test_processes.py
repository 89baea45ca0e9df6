"""The process pool accepts tasks while it runs, and ends without warnings if it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.executors.processes import ProcessExecutor
from schemas.errors import BuildError
from tests.conftest import REPO

PROGRAM = """
import os, signal
from pipeline.executors.processes import ProcessExecutor
executor = ProcessExecutor(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_kill_no_warning_about_semaphores_appears() -> None:
    # Python's resource tracker prints the warning when it removes the semaphores of the pool. The
    # tracker inherits standard error, so `run` returns only after the tracker has ended.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stderr == ""


def double(task: int, on_bytes: object, *, durable: bool) -> int:
    if task < 0:
        raise BuildError(f"task {task}")
    return 2 * task


def test_tasks_that_are_made_while_others_run_get_the_next_numbers() -> None:
    def more() -> Iterator[int | None]:
        for task in range(10, 40):
            yield None
            yield task

    found: dict[int, int] = {}
    with ProcessExecutor(2) as executor:
        executor.run(double, [1, 2], found.__setitem__, lambda count: None, more=more())
    assert found == dict(enumerate([2, 4, *range(20, 80, 2)]))


def wait_or_fail(task: tuple[str, Path], on_bytes: object, *, durable: bool) -> None:
    """Begin, wait for the pipe, and write a file; or wait until another task has begun, and fail.

    Raises:
        BuildError: the task is the one that fails.
    """
    kind, folder = task
    if kind == "wait":
        (folder / "begun").touch()
        (folder / "pipe").read_bytes()
        (folder / "ended").touch()
        return
    while not (folder / "begun").exists():
        time.sleep(0.005)
    raise BuildError("failed")


def test_drain_returns_when_no_task_runs_any_more(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    draining = threading.Event()

    def let_go() -> None:
        draining.wait()
        (tmp_path / "pipe").write_bytes(b"go")

    thread = threading.Thread(target=let_go)
    thread.start()
    with ProcessExecutor(2) as executor:
        tasks = [("wait", tmp_path), ("fail", tmp_path)]
        with pytest.raises(BuildError, match="failed"):
            executor.run(wait_or_fail, tasks, lambda *_: None, lambda count: None)
        assert not (tmp_path / "ended").exists()
        draining.set()
        executor.drain()
        assert (tmp_path / "ended").exists()
    thread.join()


def test_at_most_two_tasks_for_each_worker_are_made_ahead() -> None:
    made, ended = 0, 0
    most = 0

    def more() -> Iterator[int]:
        nonlocal made, most
        for task in range(50):
            made += 1
            most = max(most, made - ended)
            yield task

    def count(index: int, outcome: int) -> None:
        nonlocal ended
        ended += 1

    with ProcessExecutor(2) as executor:
        executor.run(double, [], count, lambda count: None, more=more())
    assert ended == 50
    assert most <= 4


def test_an_error_of_a_task_or_of_the_iterator_ends_the_run() -> None:
    def faulty() -> Iterator[int]:
        yield 1
        raise BuildError("no more")

    with ProcessExecutor(1) as executor:
        for more, message in ((faulty(), "no more"), (iter([-7]), "task -7")):
            with pytest.raises(BuildError, match=message):
                executor.run(double, [], lambda *_: None, lambda count: None, more=more)
