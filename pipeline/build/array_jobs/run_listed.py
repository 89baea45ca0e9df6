"""Run tasks of a task list, and commit the dataset when all tasks have finished."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from pipeline.build.array_jobs.listed_results import (
    join_clusters,
    map_outcome_of,
    merge_drawn_members,
    results_of,
)
from pipeline.build.array_jobs.task_lines import stage_of, task_reporter
from pipeline.build.array_jobs.task_list import STAGES, TaskList
from pipeline.build.assemble_manifest import Built
from pipeline.build.build_dataset import Build
from pipeline.build.clusters.draw_task import DrawTask
from pipeline.build.destination.missing_file import missing_file
from pipeline.build.map_stage.hash_task import HashTask
from pipeline.build.map_stage.map_results import MapOutcome
from pipeline.build.prepare_build import existing_dataset
from pipeline.build.progress.reporter import Reporter
from pipeline.build.rerun_damaged import mended
from pipeline.build.run_task import run_once
from pipeline.build.stages import draw_tasks, link_tasks, prepare_tasks, reduce_tasks
from pipeline.build.task_markers import Outcome
from pipeline.build.tasks import Job, MapTask, ReduceTask, Task, writer_of
from pipeline.executors.executor import Executor, SerialExecutor
from pipeline.executors.processes import ProcessExecutor
from pipeline.executors.worker_count import workers_of
from pipeline.inputs.find import unchanged
from pipeline.inputs.source import Source
from pipeline.storage.urls import is_url
from schemas.errors import DatasetError, InputError, OptionError
from schemas.manifest import Manifest

_STAGE_NEEDS: Final = {
    "link": "only with --clusters or --sample-clusters",
    "draw": "only with --sample-clusters",
}
"""Stages that not every plan has, and the options that add them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TasksRun:
    """Number of tasks that a call ran, and number of tasks that had finished before."""

    run: int
    skipped: int


def run_tasks(
    listed: TaskList, stage: str | None, index: int, every: int | None, report: Reporter
) -> TasksRun:
    """Run task `index` of a stage, unless the task has finished already.

    Args:
        stage: name of the stage. With None, `index` counts the tasks of all stages.
        every: if given, run the tasks index, index + every, index + 2 · every, … of the stage.
    Raises:
        ThdpackError: a task failed.
        BuildError: the previous stage has not finished.
        InputError: an input of the tasks has changed since the tasks were planned.
    """
    with listed.destination.claim(shared=True):
        tasks = _chosen(listed, stage, index, every)
        for task in tasks:
            if isinstance(task, MapTask | HashTask):
                _refuse_changed(task.source)
        report.phase(stage or stage_of(tasks), sum(_input_bytes(task) for task in tasks))
        report_task = task_reporter(listed, tasks, report)
        skipped = _run(listed, tasks, SerialExecutor(durable=True), report, report_task)
    return TasksRun(run=len(tasks) - skipped, skipped=skipped)


def _input_bytes(task: Task[Any]) -> int:
    """Return the number of input bytes that a map or hash task reads; 0 for other tasks."""
    return task.end - task.begin if isinstance(task, MapTask | HashTask) else 0


def commit(listed: TaskList, workers: int | None, report: Reporter) -> Built:
    """Pack the sequences that reduce tasks left over, verify all files, and write the manifest.

    Raises:
        BuildError: tasks of the list have not finished. The message names these tasks.
        DatasetError: another dataset exists.
    """
    destination, options = listed.destination, replace(listed.options, workers=workers)
    with destination.claim():
        map_outcome = map_outcome_of(listed)
        existing = existing_dataset(destination, options)
        if existing is not None:
            destination.will_replace(existing)
        with ProcessExecutor(workers_of(options)) as executor:
            build = Build(listed.options, listed.plan, destination, executor, report)
            if existing is not None and _is_planned(existing, listed, map_outcome):
                return build.found(existing)
            job = listed.job(map_outcome.build)
            reduces = reduce_tasks(job, listed.plan.partitions)

            def run_again(name: str) -> None:
                _run(listed, [task for task in reduces if task.name == name], executor, report)

            def finish() -> Built:
                results = results_of(listed, "reduce", reduces)
                return build.finish(job, map_outcome, results, _extended(existing, listed))

            return mended(finish, run_again, listed.work, report)


def _run(
    listed: TaskList,
    tasks: Sequence[Task[Any]],
    executor: Executor,
    report: Reporter,
    report_task: Callable[[int, Outcome[Any]], None] = lambda index, outcome: None,
) -> int:
    """Run tasks, call `report_task` for each that this call ran, and return the number of tasks
    that had finished before.

    If a task finds that a work file (a file that an earlier task wrote) is damaged, run the earlier
    task again, and then retry.
    """
    work = partial(run_once, out=listed.out)
    finished: set[int] = set()
    """Indices of tasks that this call has run."""
    skipped: set[int] = set()

    def note(index: int, outcome: Outcome[Any]) -> None:
        if not outcome.skipped:
            finished.add(index)
            report_task(index, outcome)
        elif index not in finished:
            skipped.add(index)

    job = next((task.job for task in tasks if isinstance(task, DrawTask | ReduceTask)), None)

    def run_again(name: str) -> None:
        if job is not None and name == writer_of(job.joined):
            listed.work.remove(job.joined)  # no task writes this file; `run_all` does
            return
        if job is not None and name == writer_of(job.intervals):
            listed.work.remove(job.intervals)
            return
        # look among the prepare tasks first, because `_earlier` needs the results of all of them
        prepares = prepare_tasks(listed.plan, listed.work)
        chosen: list[Task[Any]] = [task for task in prepares if task.name == name]
        if not chosen:
            chosen = [task for task in (*_earlier(listed, job), *tasks) if task.name == name]
        executor.run(work, chosen, lambda _, outcome: None, report.advance)

    def run_all() -> None:
        if job is not None:
            join_clusters(listed, job)
            if any(isinstance(task, ReduceTask) for task in tasks):
                merge_drawn_members(listed, job)
        executor.run(work, tasks, note, report.advance)

    mended(run_all, run_again, listed.work, report)
    return len(skipped)


def _earlier(listed: TaskList, job: Job | None) -> Sequence[Task[Any]]:
    """Return the tasks of earlier stages that wrote work files for later tasks.

    Args:
        job: job of the later tasks if these are draw or reduce tasks, else None.
    """
    if job is None:
        return listed.maps
    partitions = listed.plan.partitions
    return [*listed.maps, *link_tasks(job, partitions), *draw_tasks(job, partitions)]


def _chosen(
    listed: TaskList, stage: str | None, index: int, every: int | None
) -> Sequence[Task[Any]]:
    """Return the tasks that `stage`, `index` and `every` select.

    Raises:
        OptionError: the plan has no tasks of this stage, or `index` is beyond the last task.
    """
    counts = listed.counts
    if every is None and stage is not None and stage not in counts:
        following = next(each for each in STAGES[STAGES.index(stage) :] if each in counts)
        raise OptionError(
            f"{listed.out.where()}: this plan has no {stage} tasks ({_STAGE_NEEDS[stage]}): "
            f"continue with --stage {following}"
        )
    total = sum(counts.values()) if stage is None else counts.get(stage, 0)
    if every is None and index >= total:
        chosen = counts if stage is None else {stage: total}
        tasks = " + ".join(f"{count} {name}" for name, count in chosen.items())
        noun = "task" if total == 1 else "tasks"
        raise OptionError(
            f"{listed.out.where()}: --index {index} is beyond the {tasks} {noun} of this plan: "
            f"the last index is {total - 1}"
        )
    if stage is None:
        for stage, total in counts.items():  # noqa: B007 (used after the loop)
            if index < total:
                break
            index -= total
    indices = range(index, total, every or total)
    if stage == "map":
        mapping: list[Task[Any]] = [*listed.maps, *listed.hashes]
        return [mapping[i] for i in indices]
    map_outcome = map_outcome_of(listed)
    existing = existing_dataset(listed.destination, listed.options)
    if existing is not None and _is_planned(existing, listed, map_outcome):
        return []
    job = listed.job(map_outcome.build)
    partitions = listed.plan.partitions
    if stage == "link":
        links = link_tasks(job, partitions)
        return [links[i] for i in indices]
    if stage == "draw":
        draws = draw_tasks(job, partitions)
        return [draws[i] for i in indices]
    return [ReduceTask(job=job, partition=i, partitions=partitions) for i in indices]


def _refuse_changed(source: Source) -> None:
    """Refuse an input that has changed since the tasks were planned.

    Raises:
        InputError: the input is missing, or its size, times or etag differ.
    """
    if not is_url(source.url) and not os.path.exists(source.url):
        raise InputError(
            f"no such file on {os.uname().nodename}, where this task ran: mount its folder there "
            "at the same path, or plan again with inputs in a store or in a folder that all nodes "
            "mount",
            source=source.url,
        )
    if not unchanged(source):
        raise InputError(
            "changed since the tasks were planned (content, permissions or links); "
            "plan again, with --overwrite",
            source=source.url,
        )


def _extended(existing: Manifest | None, listed: TaskList) -> Manifest | None:
    """Return the dataset to which the listed tasks add variants; None if they build a new one."""
    return existing if listed.first_variant else None


def _is_planned(existing: Manifest, listed: TaskList, map_outcome: MapOutcome) -> bool:
    """Return whether the existing dataset is the planned one. Return False with --overwrite, or if
    the existing dataset still lacks planned variants.

    Raises:
        DatasetError: the existing dataset is damaged, or has other inputs or another number of
            variants, and --overwrite was not given.
    """
    if listed.options.overwrite:  # the existing dataset may be damaged
        return False
    problem = missing_file(existing, listed.out)
    if existing.build != map_outcome.build:
        problem = problem or "the inputs changed since this dataset was built"
    elif existing.variants not in (listed.first_variant, listed.options.variants):
        problem = problem or f"this dataset has {existing.variants} variants now"
    if problem is not None:
        remedy = "plan again, with another --out, or with --overwrite to replace it"
        raise DatasetError(f"{listed.out.where()}: {problem}; {remedy}")
    return existing.variants == listed.options.variants
