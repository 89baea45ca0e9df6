"""The interface of executors: run tasks and return their outcomes.

An executor knows nothing about tasks: the caller passes `work`, a function that does one task. The
bytes that tasks write do not depend on the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pipeline.storage.folder import Folder

OnBytes = Callable[[int], None]
"""Called with the number of bytes read since the last call."""

TaskT = TypeVar("TaskT")
TaskIn = TypeVar("TaskIn", contravariant=True)
OutcomeOut = TypeVar("OutcomeOut", covariant=True)


class Work(Protocol[TaskIn, OutcomeOut]):
    """Function that does one task.

    durable: files for later tasks must survive a power cut, because those run on other machines.
    """

    def __call__(self, task: TaskIn, on_bytes: OnBytes, *, durable: bool) -> OutcomeOut: ...


class Executor(Protocol):
    """Runs tasks, and reports each outcome as soon as it is known."""

    def run(
        self,
        work: Work[TaskT, Any],
        tasks: Sequence[TaskT],
        on_outcome: Callable[[int, Any], None],
        on_bytes: OnBytes,
    ) -> None:
        """Run all tasks; stop at the first error.

        Args:
            work: does one task; a module-level function, which workers find by its name.
            on_outcome: called with each task's index and outcome, in the order they finish.
            on_bytes: called with the bytes read since the last call.
        Raises:
            ThdpackError: a task failed; BuildError if its workers are gone.
        """
        ...

    def end(self) -> None:
        """Release workers in the background, because no task follows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorRequest:
    """Needs of a build.

    out: the dataset's folder, which every worker has to see.
    workers: tasks that may run at once on this machine: as many as --workers, cores and memory
        allow.
    asked_workers: --workers.
    address: --ray-address.
    """

    out: Folder
    workers: int
    asked_workers: int | None
    address: str | None


class SerialExecutor:
    """Runs tasks one after another in this process, which a scheduler started."""

    def __init__(self, *, durable: bool = False) -> None:
        self._durable = durable

    def end(self) -> None:
        """Do nothing, because there are no workers."""

    def run(
        self,
        work: Work[TaskT, Any],
        tasks: Sequence[TaskT],
        on_outcome: Callable[[int, Any], None],
        on_bytes: OnBytes,
    ) -> None:
        for index, task in enumerate(tasks):
            on_outcome(index, work(task, on_bytes, durable=self._durable))
