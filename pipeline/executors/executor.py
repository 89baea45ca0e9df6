"""The interface of executors: run tasks and return their outcomes.

An executor knows nothing about tasks: the caller passes `work`, a function that does one task. The
bytes that tasks write do not depend on the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pipeline.storage.folder import Folder

OnBytes = Callable[[int], None]
"""Function that a task calls with the number of bytes read since the last call."""

TaskT = TypeVar("TaskT")
TaskIn = TypeVar("TaskIn", contravariant=True)
OutcomeOut = TypeVar("OutcomeOut", covariant=True)


class Work(Protocol[TaskIn, OutcomeOut]):
    """Function that does one task.

    durable: True to fsync the files that the task writes for later tasks. Otherwise, these files
        may be lost if the machine fails.
    """

    def __call__(self, task: TaskIn, on_bytes: OnBytes, *, durable: bool) -> OutcomeOut: ...


class Executor(Protocol):
    """Runs tasks, and reports each task's outcome when the task ends."""

    def run(
        self,
        work: Work[TaskT, Any],
        tasks: Sequence[TaskT],
        on_outcome: Callable[[int, Any], None],
        on_bytes: OnBytes,
        *,
        more: Iterator[TaskT | None] | None = None,
    ) -> None:
        """Run all tasks; stop at the first error.

        Args:
            work: module-level function that does one task. Workers find this function by its name.
            on_outcome: function that is called with a task's index and outcome when the task ends.
            on_bytes: function that is called with the number of bytes read since the last call.
            more: iterator that makes further tasks while the first ones run. It yields None if the
                next task is not ready yet. Their numbers follow those of `tasks`. Only executors
                with `tasks_at_once` accept this argument.
        Raises:
            ThdpackError: a task failed.
            BuildError: workers died.
        """
        ...

    @property
    def tasks_at_once(self) -> int:
        """Number of tasks that run at once, if `run` accepts `more`; otherwise 0."""
        ...

    def drain(self) -> None:
        """Cancel tasks that wait, and return when no task runs any more. Call this after an error.
        No more tasks may follow."""
        ...

    def end(self) -> None:
        """Release workers in the background. Call this when no more tasks follow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorRequest:
    """Requirements that a build has for its executor.

    out: the dataset's folder, to which every worker needs access
    workers: maximum number of tasks that run in parallel on this machine; computed from --workers,
        the number of cores and the memory
    asked_workers: value of --workers
    address: value of --ray-address
    """

    out: Folder
    workers: int
    asked_workers: int | None
    address: str | None


class SerialExecutor:
    """Runs tasks one after another in this process. The array jobs of a scheduler use it."""

    tasks_at_once = 0

    def __init__(self, *, durable: bool = False) -> None:
        self._durable = durable

    def drain(self) -> None:
        """Do nothing, because no task runs after `run` has returned."""

    def end(self) -> None:
        """Do nothing, because there are no workers."""

    def run(
        self,
        work: Work[TaskT, Any],
        tasks: Sequence[TaskT],
        on_outcome: Callable[[int, Any], None],
        on_bytes: OnBytes,
        *,
        more: Iterator[TaskT | None] | None = None,
    ) -> None:
        assert more is None
        for index, task in enumerate(tasks):
            on_outcome(index, work(task, on_bytes, durable=self._durable))
