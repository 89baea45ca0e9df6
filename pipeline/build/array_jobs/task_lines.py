"""Print one line for each task that `thdpack run-task` has run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.build.array_jobs.task_list import TaskList
from pipeline.build.clusters.draw_task import DrawTask
from pipeline.build.clusters.link_task import LinkTask
from pipeline.build.map_stage.hash_task import HashTask
from pipeline.build.progress.reporter import Reporter
from pipeline.build.task_markers import Outcome
from pipeline.build.tasks import MapTask, ReduceTask, Task


def task_reporter(
    listed: TaskList, tasks: Sequence[Task[Any]], report: Reporter
) -> Callable[[int, Outcome[Any]], None]:
    """Return a function that shows a line for a finished task, given its index in `tasks`."""

    counts = listed.counts
    first: list[Task[Any]] = [*listed.maps, *listed.hashes]
    mapping = {task.name: number for number, task in enumerate(first)}

    def show(index: int, outcome: Outcome[Any]) -> None:
        task = tasks[index]
        stage, number = stage_of([task]), _number_of(task, mapping)
        source = task.source.name if isinstance(task, MapTask | HashTask) else None
        seconds = round(outcome.span.ended - outcome.span.began, 3)
        host = os.uname().nodename
        of_source = f"{source}, " if source is not None else ""
        total = counts[stage]
        report.note(
            f"{stage} task {number} (of 0 to {total - 1}): {of_source}{seconds:,.1f} s on {host}",
            stage=stage,
            index=number,
            input=source,
            host=host,
            seconds=seconds,
        )

    return show


def _number_of(task: Task[Any], mapping: Mapping[str, int]) -> int:
    """Return the index of a task among the tasks of its stage, as --index counts."""
    match task:
        case LinkTask() | DrawTask() | ReduceTask():
            return task.partition
    return mapping[task.name]


def stage_of(tasks: Sequence[Task[Any]]) -> str:
    """Return the stage of the first task; "reduce" if no task is left to run."""
    match tasks:
        case [MapTask() | HashTask(), *_]:
            return "map"
        case [LinkTask(), *_]:
            return "link"
        case [DrawTask(), *_]:
            return "draw"
    return "reduce"
