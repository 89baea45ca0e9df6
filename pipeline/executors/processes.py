"""Running tasks in parallel. An executor takes tasks and gives their outcomes; the bytes they write do not depend on it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import connection, parent_process
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from pipeline.storage.interrupt import held_back, look
from schemas.errors import BuildError

if TYPE_CHECKING:
    from pipeline.build.task_markers import Outcome
    from pipeline.build.tasks import Task
    from pipeline.storage.folder import Folder

_KILLED = "a worker process was killed, perhaps for lack of memory (see --memory); run the same command to go on"
_TASK_MODULES: Final = (
    "pipeline.build.task_markers",
    "pipeline.executors.worker_memory",
    "pipeline.build.map_stage.partition_records",
    "pipeline.build.reduce_stage.reduce_partition",
    "pipeline.build.verify.check_files",
)
"""What workers need, and load before there is a task."""
_CONTEXT = multiprocessing.get_context("forkserver")


def preload(*more: str) -> None:
    """Start importing what workers need, and `more` modules, in the background; called first thing, it costs the user no time."""
    from multiprocessing import forkserver

    _CONTEXT.set_forkserver_preload([*_TASK_MODULES, *more])
    forkserver.ensure_running()


class Executor(Protocol):
    """Runs tasks; each outcome is passed on as it comes."""

    def run(self, tasks: Sequence[Task], on_outcome: Callable[[int, Outcome], None], on_bytes: Callable[[int], None]) -> None: ...

    def end(self) -> None:
        """No task follows: what ran them may go, beside what else is to do."""


class ProcessExecutor:
    """Tasks in processes of this machine.

    Workers die with the process that started them, also when that is killed, and leave only unfinished temporary files.
    """

    def __init__(self, workers: int, out: Folder) -> None:
        self._out = out
        self._bytes = _CONTEXT.Value("q", 0)
        for name in (
            "pipeline.build.task_markers",
            "pipeline.build.assemble_manifest",
        ):
            import_module(name)
        self._pool = ProcessPoolExecutor(workers, mp_context=_CONTEXT, initializer=_start_worker, initargs=(self._bytes,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for child in multiprocessing.active_children():  # idle, or, after an error, at work on what is not yet named
            child.kill()
        # waits for the pool's thread too: left running, it races the interpreter's exit for its pipe and prints a traceback
        self._pool.shutdown(wait=True, cancel_futures=True)

    def end(self) -> None:
        """Let the workers go."""
        self._pool.shutdown(wait=False)

    def run(self, tasks: Sequence[Task], on_outcome: Callable[[int, Outcome], None], on_bytes: Callable[[int], None]) -> None:
        """Run all tasks; the first error ends it.

        Args:
            on_outcome: called with each task's index and outcome, in the order they finish.
            on_bytes: called with the bytes read since the last call, several times a second.
        Raises:
            ThdpackError: what a task raises; BuildError if a worker was killed.
        """
        with held_back():
            try:
                pending: dict[Future[Any], int] = {self._pool.submit(_work, task, self._out): i for i, task in enumerate(tasks)}
            except (BrokenProcessPool, EOFError, ConnectionError) as error:  # the last two: the process that forks workers is gone
                raise BuildError(_KILLED) from error
            seen = self._bytes.value
            try:
                while pending:
                    done, _ = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
                    look()
                    for future in done:
                        on_outcome(pending.pop(future), future.result())
                    now = self._bytes.value
                    on_bytes(now - seen)
                    seen = now
            except BrokenProcessPool as error:
                raise BuildError(_KILLED) from error


class SerialExecutor:
    """Tasks one after another in this process, which a scheduler started beside others of its kind.

    durable: see `pipeline.build.task_markers.run_once`.
    """

    def __init__(self, out: Folder, *, durable: bool = False) -> None:
        self._out = out
        self._durable = durable

    def end(self) -> None:
        """Nothing ran beside this process."""

    def run(self, tasks: Sequence[Task], on_outcome: Callable[[int, Outcome], None], on_bytes: Callable[[int], None]) -> None:
        """Run all tasks; the first error ends it.

        Raises:
            ThdpackError: what a task raises.
        """
        from pipeline.build.task_markers import run_once

        for index, task in enumerate(tasks):
            on_outcome(index, run_once(task, self._out, on_bytes, durable=self._durable))


_counter: Any = None


def _start_worker(counter: Any) -> None:
    """In a new worker: Ctrl-C is the parent's business, and the parent's death is ours."""
    from pipeline.executors.worker_memory import keep_memory

    keep_memory()
    global _counter
    _counter = counter
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _count(number: int) -> None:
    with _counter.get_lock():
        _counter.value += number


def _work(task: Task, out: Folder) -> Outcome:
    from pipeline.build.task_markers import run_once

    return run_once(task, out, _count)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
