"""Run tasks in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import connection, parent_process
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Self

from pipeline.executors.cgroup_limits import cgroup_limits
from pipeline.executors.executor import OnBytes, TaskT, Work
from pipeline.executors.numpy_threads import no_numpy_threads
from pipeline.executors.worker_memory import keep_memory
from pipeline.storage.interrupt import interrupts_deferred, raise_if_interrupted
from schemas.errors import BuildError

_KILLED = (
    "a worker process was killed, perhaps for lack of memory (see --memory); "
    "run the same command to resume"
)
_CONTEXT = multiprocessing.get_context("forkserver")
_QUEUED: Final = 2
"""Number of tasks per worker up to which further tasks are made. More would wait in the queue."""
_PACKAGES_FOLDER: Final = str(Path(__file__).parents[2])


def preload(*modules: str) -> None:
    """Begin to import the workers' modules in the fork server, the process that forks workers.

    Call this function before other imports, so that both processes import at the same time.
    """
    _CONTEXT.set_forkserver_preload([__name__, *modules])
    _start_fork_server()


def _start_fork_server() -> None:
    """Start the fork server, unless it runs already.

    SIGINT is blocked while the server starts, and the server inherits this block. The server itself
    ignores SIGINT only after its imports. Without the block, a Ctrl-C during the imports would end
    the server with a traceback.
    """
    from multiprocessing import forkserver, resource_tracker

    with _environment(), no_numpy_threads():
        resource_tracker.ensure_running()  # must be first, because it unblocks SIGINT at its end
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def _environment() -> Iterator[None]:
    """Set environment variables for the fork server and Python's resource tracker. Both start
    inside this context.

    - PYTHONPATH and PYTHONSAFEPATH make the processes import our packages. Python 3.11 does not
      pass sys.path to the fork server, which imports modules from the current folder first. A
      folder or file `schemas` there would then replace our package `schemas`.
    - PYTHONWARNINGS suppresses a false warning. If this process is killed, the tracker removes the
      semaphores of the pool, but also warns that they leaked.
    """
    names = ("PYTHONPATH", "PYTHONSAFEPATH", "PYTHONWARNINGS")
    before = {name: os.environ.get(name) for name in names}
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (_PACKAGES_FOLDER, before["PYTHONPATH"]))
    )
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ["PYTHONWARNINGS"] = ",".join(
        filter(None, (before["PYTHONWARNINGS"], "ignore:resource_tracker:UserWarning"))
    )
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class ProcessExecutor:
    """Runs tasks in processes of this machine.

    Workers end with the process that started them, even if that process is killed. In that case,
    workers leave only unfinished temporary files.
    """

    def __init__(self, workers: int) -> None:
        _start_fork_server()
        self.tasks_at_once: Final = workers
        self._bytes = _CONTEXT.Value("q", 0)
        self._pool = ProcessPoolExecutor(
            workers, mp_context=_CONTEXT, initializer=_start_worker, initargs=(self._bytes,)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # workers are safe to kill: they are idle or, after an error, write only temporary files
        for child in multiprocessing.active_children():
            child.kill()
        # wait for the pool's thread too; otherwise the thread may print a traceback while the
        # interpreter exits
        self._pool.shutdown(wait=True, cancel_futures=True)

    def drain(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def end(self) -> None:
        """Release the workers. Call this when no more tasks follow."""
        self._pool.shutdown(wait=False)

    def run(
        self,
        work: Work[TaskT, Any],
        tasks: Sequence[TaskT],
        on_outcome: Callable[[int, Any], None],
        on_bytes: OnBytes,
        *,
        more: Iterator[TaskT | None] | None = None,
    ) -> None:
        """See `Executor.run`. This method calls `on_bytes` several times a second."""
        with interrupts_deferred():
            try:
                pending: dict[Future[Any], int] = {
                    self._pool.submit(_work, work, task): i for i, task in enumerate(tasks)
                }
            except (BrokenProcessPool, EOFError, ConnectionError) as error:
                # EOFError and ConnectionError mean that the fork server died
                raise BuildError(_KILLED) from error
            # `wait` of concurrent.futures would scan all pending tasks each time a task ends
            done: SimpleQueue[Future[Any]] = SimpleQueue()
            for future in pending:
                future.add_done_callback(done.put)
            number = len(tasks)
            seen = self._bytes.value
            try:
                while pending or more is not None:
                    wait = True
                    if more is not None and len(pending) < _QUEUED * self.tasks_at_once:
                        wait = False
                        try:
                            task = next(more)
                        except StopIteration:
                            more = task = None
                        if task is not None:
                            future = self._pool.submit(_work, work, task)
                            pending[future] = number
                            number += 1
                            future.add_done_callback(done.put)
                    finished = _some_of(done, wait=wait)
                    raise_if_interrupted()
                    for future in finished:
                        on_outcome(pending.pop(future), future.result())
                    now = self._bytes.value
                    on_bytes(now - seen)
                    seen = now
            except BrokenProcessPool as error:
                raise BuildError(_KILLED) from error


def _some_of(done: SimpleQueue[Future[Any]], *, wait: bool) -> list[Future[Any]]:
    """Return all tasks that have finished since the last call. With `wait`, if there is none, wait
    for one for at most 0.1 s."""
    found = []
    with suppress(Empty):
        if wait:
            found.append(done.get(timeout=0.1))
        while True:
            found.append(done.get_nowait())
    return found


_counter: Any = None


def _start_worker(counter: Any) -> None:
    """Prepare a new worker: ignore Ctrl-C, which the parent handles, and end with the parent."""
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
    """Return the number of cores that this process may use."""
    affinity = hasattr(os, "sched_getaffinity")
    own = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    quota = cgroup_limits().cores
    return own if quota is None else max(1, min(own, int(quota)))
