"""Running tasks in parallel. An executor takes tasks and gives their outcomes; the bytes they write do not depend on it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, parent_process
from types import TracebackType
from typing import Any, Self

from pipeline.executors.executor import OnBytes, TaskT, Work
from pipeline.executors.worker_memory import keep_memory
from pipeline.storage.interrupt import interrupts_deferred, raise_if_interrupted
from schemas.errors import BuildError

_KILLED = "a worker process was killed, perhaps for lack of memory (see --memory); run the same command to go on"
_CONTEXT = multiprocessing.get_context("forkserver")


def preload(*modules: str) -> None:
    """Start importing modules that workers need in the background; called first thing, it costs the user no time."""
    from multiprocessing import forkserver

    _CONTEXT.set_forkserver_preload([__name__, *modules])
    forkserver.ensure_running()


class ProcessExecutor:
    """Tasks in processes of this machine.

    Workers die with the process that started them, also when that is killed, and leave only unfinished temporary files.
    """

    def __init__(self, workers: int) -> None:
        self._bytes = _CONTEXT.Value("q", 0)
        self._pool = ProcessPoolExecutor(
            workers, mp_context=_CONTEXT, initializer=_start_worker, initargs=(self._bytes,)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in (
            multiprocessing.active_children()
        ):  # idle, or, after an error, at work on what is not yet named
            child.kill()
        # waits for the pool's thread too: left running, it races the interpreter's exit for its pipe and prints a traceback
        self._pool.shutdown(wait=True, cancel_futures=True)

    def end(self) -> None:
        """Let the workers go."""
        self._pool.shutdown(wait=False)

    def run(
        self,
        work: Work[TaskT, Any],
        tasks: Sequence[TaskT],
        on_outcome: Callable[[int, Any], None],
        on_bytes: OnBytes,
    ) -> None:
        """Run all tasks; the first error ends it.

        Args:
            work: does one task; a module-level function, which crosses to the workers by name.
            on_outcome: called with each task's index and outcome, in the order they finish.
            on_bytes: called with the bytes read since the last call, several times a second.
        Raises:
            ThdpackError: what a task raises; BuildError if a worker was killed.
        """
        with interrupts_deferred():
            try:
                pending: dict[Future[Any], int] = {
                    self._pool.submit(_work, work, task): i for i, task in enumerate(tasks)
                }
            except (
                BrokenProcessPool,
                EOFError,
                ConnectionError,
            ) as error:  # the last two: the process that forks workers is gone
                raise BuildError(_KILLED) from error
            seen = self._bytes.value
            try:
                while pending:
                    done, _ = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
                    raise_if_interrupted()
                    for future in done:
                        on_outcome(pending.pop(future), future.result())
                    now = self._bytes.value
                    on_bytes(now - seen)
                    seen = now
            except BrokenProcessPool as error:
                raise BuildError(_KILLED) from error


_counter: Any = None


def _start_worker(counter: Any) -> None:
    """In a new worker: Ctrl-C is the parent's business, and the parent's death is ours."""
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


def _work(work: Work[TaskT, Any], task: TaskT) -> Any:
    return work(task, _count, durable=False)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
