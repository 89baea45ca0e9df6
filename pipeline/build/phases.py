"""Run the phases of a build. A phase is a group of tasks that do not depend on each other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from pipeline.build.progress.progress_file import ProgressFile
from pipeline.build.progress.reporter import Reporter
from pipeline.build.progress.timeline import PhaseTimes
from pipeline.build.run_task import run_once
from pipeline.build.task_markers import Outcome
from pipeline.build.task_results import MapResult
from pipeline.build.tasks import Task
from pipeline.executors.executor import Executor
from pipeline.storage.folder import Folder
from pipeline.storage.local_folder import LocalFolder
from schemas.manifest import WORK
from schemas.text.phrases import plural

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Phases:
    """Runs tasks in an executor, and reports their progress.

    out: the dataset's folder
    times: times of each phase that has begun
    """

    executor: Executor
    report: Reporter
    out: Folder
    times: list[PhaseTimes] = field(default_factory=list)
    _progress: ProgressFile = field(init=False)

    def __post_init__(self) -> None:
        work = self.out.path / WORK if isinstance(self.out, LocalFolder) else None
        object.__setattr__(self, "_progress", ProgressFile(work))  # the dataclass is frozen

    @property
    def resumed(self) -> bool:
        """True if an earlier run finished some tasks."""
        return any(phase.skipped for phase in self.times)

    def run(
        self,
        name: str,
        tasks: Sequence[Task[Result]],
        total_bytes: int,
        *,
        more: Iterator[Task[Result] | None] | None = None,
    ) -> list[Result]:
        """Run the tasks of a phase, except finished ones, and return all results in order.

        Args:
            name: name of the phase, which the user sees.
            total_bytes: number of bytes that the tasks read; 0 if it is not known.
            more: further tasks of the phase; see `Executor.run`. Their results come last.
        """
        tasks = list(tasks)
        self.report.phase(name, total_bytes)
        self._progress.phase(name, total_bytes)
        times = PhaseTimes(name, total_bytes, began=time.time())
        self.times.append(times)
        results: dict[int, Result] = {}

        def keep(index: int, outcome: Outcome[Result]) -> None:
            results[index] = outcome.result
            times.tasks.append((tasks[index].name, outcome.span))
            times.skipped += outcome.skipped
            if isinstance(outcome.result, MapResult):
                self._progress.records += outcome.result.records

        def advance(done_bytes: int) -> None:
            self.report.advance(done_bytes)
            self._progress.advance(done_bytes)

        try:
            self.executor.run(
                partial(run_once, out=self.out),
                tuple(tasks),
                keep,
                advance,
                more=None if more is None else _noted(more, tasks),
            )
        finally:
            times.ended = time.time()
        if times.skipped:
            of_all = f"{times.skipped} of {plural(len(tasks), 'task')}"
            self.report.note(
                f"{name}: skipped {of_all}, which an earlier run finished",
                skipped=times.skipped,
                tasks=len(tasks),
            )
        return [results[index] for index in range(len(tasks))]


def _noted(
    more: Iterator[Task[Result] | None], tasks: list[Task[Result]]
) -> Iterator[Task[Result] | None]:
    """Yield further tasks, and add them to `tasks`."""
    for task in more:
        if task is not None:
            tasks.append(task)
        yield task
