"""Registry of executors, by the values of `--executor`.

An executor's module is imported when a build opens the executor, so that the command line starts
quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from pipeline.executors.executor import Executor, ExecutorRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorKind:
    """A kind of executor.

    open: function that starts the workers.
        Raises:
            BuildError: a library is missing, or a cluster does not answer.
    remote: True if tasks may run on other machines, and in another working directory.
    package: package that `open` imports, if thdpack does not depend on it.
    notice: text for a start of several seconds without an address; empty if the start is quick.
    """

    open: Callable[[ExecutorRequest], AbstractContextManager[Executor]]
    remote: bool
    package: str = ""
    notice: str = ""

    def start(
        self, request: ExecutorRequest, note: Callable[[str], None]
    ) -> AbstractContextManager[Executor]:
        """Start the workers. If this takes seconds, first call `note` with a line that says so.

        Raises:
            BuildError: a library is missing, or a cluster does not answer.
        """
        if self.notice and request.address is None and find_spec(self.package):
            note(self.notice)
        return self.open(request)


def _processes(request: ExecutorRequest) -> AbstractContextManager[Executor]:
    from pipeline.executors.processes import ProcessExecutor

    return ProcessExecutor(request.workers)


def _ray(request: ExecutorRequest) -> AbstractContextManager[Executor]:
    from pipeline.executors.ray_cluster import RayExecutor

    workers = request.asked_workers if request.address else request.workers
    return RayExecutor(request.out, address=request.address, workers=workers)


EXECUTORS: Final = {
    "processes": ExecutorKind(open=_processes, remote=False),
    "ray": ExecutorKind(
        open=_ray,
        remote=True,
        package="ray",
        notice="starting Ray on this machine, which takes several seconds",
    ),
}
"""Kinds of executors, by the values of `--executor`."""

if TYPE_CHECKING:
    ExecutorName = str
else:
    ExecutorName = Literal[tuple(EXECUTORS)]
"""A key of EXECUTORS."""
