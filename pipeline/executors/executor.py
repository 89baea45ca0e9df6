"""An executor takes tasks and gives their outcomes; the bytes that tasks write do not depend on it.

It knows nothing of what tasks do: the caller hands it `work`, a function that does one task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

OnBytes = Callable[[int], None]
"""Told how many bytes were read since it was last told."""

TaskT = TypeVar("TaskT")
TaskIn = TypeVar("TaskIn", contravariant=True)
OutcomeOut = TypeVar("OutcomeOut", covariant=True)


class Work(Protocol[TaskIn, OutcomeOut]):
    """Does one task.

    durable: what it leaves for later tasks has to survive a power cut, as they run on other machines.
    """

    def __call__(self, task: TaskIn, on_bytes: OnBytes, *, durable: bool) -> OutcomeOut: ...


class Executor(Protocol):
    """Runs tasks; each outcome is passed on as it comes."""

    def run(
        self,
        work: Work[TaskT, Any],
        tasks: Sequence[TaskT],
        on_outcome: Callable[[int, Any], None],
        on_bytes: OnBytes,
    ) -> None:
        """Run all tasks; the first error ends it.

        Args:
            on_outcome: called with each task's index and outcome, in the order they finish.
            on_bytes: called with the bytes read since the last call.
        Raises:
            ThdpackError: what a task raises.
        """
        ...

    def end(self) -> None:
        """No task follows: what ran them may go, beside what else is to do."""


class SerialExecutor:
    """Tasks one after another in this process, which a scheduler started beside others of its kind."""

    def __init__(self, *, durable: bool = False) -> None:
        self._durable = durable

    def end(self) -> None:
        """Nothing ran beside this process."""

    def run(
        self,
        work: Work[TaskT, Any],
        tasks: Sequence[TaskT],
        on_outcome: Callable[[int, Any], None],
        on_bytes: OnBytes,
    ) -> None:
        for index, task in enumerate(tasks):
            on_outcome(index, work(task, on_bytes, durable=self._durable))
