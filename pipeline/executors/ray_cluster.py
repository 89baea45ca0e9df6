"""Run tasks on a Ray cluster: an existing cluster, or a cluster that the build starts and ends.

The process that runs the build is called the driver. Ray runs a task again when its worker or node
dies. This is safe, because a task writes the same bytes every time. Tasks read and write files
directly, so Ray transfers only tasks and results, a few KB each. Ray takes 3 to 11 seconds to
start. On a single machine, use processes instead.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import length_hint
from types import TracebackType
from typing import Any, Final, Self

from pipeline.executors.executor import OnBytes, TaskT, Work
from pipeline.executors.node_requirements import NodeRequirements, versions
from pipeline.executors.ray_connection import (
    RETRIES,
    cluster_errors,
    connect,
    first_task,
    import_ray,
)
from pipeline.executors.worker_memory import keep_memory
from pipeline.storage.folder import Folder
from schemas.errors import ThdpackError

_QUEUED: Final = 2
"""Number of batches submitted for each core: the running batch, and the next batch."""
_TOGETHER: Final = 8
"""Maximum number of tasks in a batch. Between batches a worker waits 3 ms, which is 2 % of the time
of a short task. Batches are smaller towards the end of a stage."""
_LOOK_SECONDS: Final = 1.0
"""Seconds between two queries of the cluster's size. A query takes some milliseconds."""


class RayExecutor:
    """Runs tasks as Ray tasks of one core each. The first error ends all tasks."""

    def __init__(self, out: Folder, *, address: str | None, workers: int | None) -> None:
        """
        Args:
            out: the dataset's folder, which every node must see.
            address: address of a cluster. None starts a cluster on this machine.
            workers: maximum number of tasks that run in parallel. None means one task per core.
        Raises:
            BuildError: Ray is not installed, or no cluster answers at the address.
        """
        self._ray = import_ray(address)
        self._out = out
        self._workers = workers
        self._shared = address is not None and out.local
        self._driver = NodeRequirements(None, versions())
        self._running: dict[Any, int] = {}  # index of the first task of each submitted batch
        self._cancelled: list[Any] = []
        self._leaving: threading.Thread | None = None
        initialized = self._ray.is_initialized()
        if not initialized:
            connect(self._ray, address, workers)
        self._connected = first_task() is not None or not initialized
        self._looked, self._most, self._durable = 0.0, 0, False
        self._task = self._ray.remote(_work).options(num_cpus=1, max_retries=RETRIES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        if self._leaving is not None and (error is not None or first_task() is None):
            self._leaving.join()

    def end(self) -> None:
        """Leave the cluster in a background thread. Call this when no more tasks follow.

        The caller does not wait for the 0.25 s that Ray needs to end one of its own threads.
        """
        if self._leaving is not None:
            return
        if self._driver.file is not None:
            self._out.remove(self._driver.file)
        if not self._connected:
            for reference in self._running:
                self._ray.cancel(reference)
            return
        # the cluster kills the tasks of a driver that has left. ray.cancel(force=True) would
        # kill them too, but may abort this process.
        self._leaving = threading.Thread(target=self._ray.shutdown, name="leave-ray", daemon=True)
        self._leaving.start()

    tasks_at_once: Final = 0

    def run(
        self,
        work: Work[TaskT, Any],
        tasks: Sequence[TaskT],
        on_outcome: Callable[[int, Any], None],
        on_bytes: OnBytes,
        *,
        more: Iterator[TaskT | None] | None = None,
    ) -> None:
        """See `Executor.run`; `on_bytes` is called with the number of bytes of each ended batch.

        Raises:
            BuildError: a task's worker died in every attempt, or the cluster does not answer.
        """
        waiting = iter(range(len(tasks)))
        with cluster_errors(self._ray):
            if self._shared and self._driver.file is None:
                self._write_shared_file()
            while first_task() is not None and not self._ray.wait([first_task()], timeout=1.0)[0]:
                on_bytes(0)
            self._submit(work, tasks, waiting)
            while self._running:
                done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=1.0)
                for reference in done:
                    outcomes, read = self._ray.get(reference)
                    first = self._running.pop(reference)
                    on_bytes(read)
                    for index, outcome in enumerate(outcomes, first):
                        if isinstance(outcome, ThdpackError):
                            self._give_up()
                            raise outcome
                        on_outcome(index, outcome)
                on_bytes(0)
                self._submit(work, tasks, waiting)

    def _give_up(self) -> None:
        """Cancel submitted batches, so that the next `run` does not receive their outcomes."""
        for reference in self._running:
            self._ray.cancel(reference)
        self._cancelled += self._running
        self._running.clear()

    def drain(self) -> None:
        with cluster_errors(self._ray):
            if self._cancelled:
                self._ray.wait(self._cancelled, num_returns=len(self._cancelled))

    def _write_shared_file(self) -> None:
        """Write a file that every task looks for. A node that does not share the folder lacks this
        file."""
        name = f".build/shared-{uuid.uuid4().hex}.tmp"
        with self._out.written(name, durable=False):
            pass
        self._driver = replace(self._driver, file=name)

    def _has_other_nodes(self) -> bool:
        """Return whether tasks may run on other machines. If so, tasks must sync their files,
        because a machine that fails loses its page cache."""
        own_node = self._ray.get_runtime_context().get_node_id()
        return any(node["Alive"] and node["NodeID"] != own_node for node in self._ray.nodes())

    def _submit(
        self, work: Work[TaskT, Any], tasks: Sequence[TaskT], waiting: Iterator[int]
    ) -> None:
        """Submit batches until every core is busy. The cluster's size may change during a build.

        Batches become smaller at the end, so that all cores finish at about the same time.
        """
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._most = self._workers or _QUEUED * max(
                1, int(self._ray.cluster_resources().get("CPU", 1))
            )
            self._durable = self._has_other_nodes()
            self._looked = time.monotonic()
        while len(self._running) < self._most:
            indices = list(
                islice(waiting, max(1, min(_TOGETHER, length_hint(waiting) // self._most)))
            )
            if not indices:
                return
            batch = [tasks[index] for index in indices]
            self._running[
                self._task.remote(work, batch, self._out, self._durable, self._driver)
            ] = indices[0]


def _work(
    work: Work[TaskT, Any],
    tasks: Sequence[TaskT],
    out: Folder,
    durable: bool,
    driver: NodeRequirements,
) -> tuple[list[Any], int]:
    """Run tasks on a worker until a task raises a ThdpackError, which is then the last outcome.

    Returns:
        Outcomes of the tasks, and the number of bytes read.
    """
    keep_memory()
    outcomes: list[Any] = []
    read = 0

    def count(number: int) -> None:
        nonlocal read
        read += number

    try:
        driver.refuse_other(out)
        for task in tasks:
            outcomes.append(work(task, count, durable=durable))
    except ThdpackError as error:
        outcomes.append(error)
    return outcomes, read
