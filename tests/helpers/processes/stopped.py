"""Functions that stop the current process (SIGSTOP) at a chosen moment.

The process then waits until the test kills it, or resumes it with SIGCONT.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline.executors.executor import OnBytes, SerialExecutor, TaskT, Work
from pipeline.executors.processes import ProcessExecutor

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
"""Audit events of Python that change a file system, besides `open`."""


def stop_after_outcomes(count: int) -> None:
    """Stop this process when `count` of its tasks have finished. Other tasks may still run."""
    number = itertools.count(1)
    for executor in (ProcessExecutor, SerialExecutor):
        executor.run = _stopping(executor.run, number, count)  # type: ignore[method-assign]


def _stopping(
    run: Callable[..., None],
    number: itertools.count[int],
    count: int,
) -> Callable[..., None]:
    def run_and_stop(
        executor: object,
        work: Work[TaskT, Any],
        tasks: Sequence[TaskT],
        on_outcome: Callable[[int, Any], None],
        on_bytes: OnBytes,
        **more: Any,
    ) -> None:
        def stop_after(index: int, outcome: Any) -> None:
            on_outcome(index, outcome)
            if next(number) == count:
                os.kill(os.getpid(), signal.SIGSTOP)

        run(executor, work, tasks, stop_after, on_bytes, **more)

    return run_and_stop


def stop_at_change(count: int, folder: str) -> None:
    """Stop this process right before its change number `count` in a folder. See `at_change`."""
    at_change(count, folder, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def at_change(count: int, folder: str, then: Callable[[], None]) -> itertools.count[int]:
    """Call `then` right before this process makes its change number `count` in a folder.

    A change is an event that opens a file for writing; renames, truncates or removes a file; or
    creates or removes a subfolder.

    Returns:
        Counter of changes. Its next value is the number of the next change, counted from 1.
    """
    number = itertools.count(1)

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            path = arguments[0]
            inside = isinstance(path, str | os.PathLike) and os.fspath(path).startswith(folder)
            if inside and next(number) == count:
                then()

    sys.addaudithook(look)
    return number


def processes_of(parent: int) -> list[int]:
    """Return the process id `parent`, and the ids of all its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
                continue
            parents[int(entry.name)] = int(stat.rsplit(")", 1)[1].split()[1])
    found = [parent]
    for process in found:
        found += [child for child, of in parents.items() if of == process]
    return found
