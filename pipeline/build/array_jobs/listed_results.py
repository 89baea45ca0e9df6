"""Read results of a task list from the markers (JSON files) that finished tasks leave."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from pipeline.build.array_jobs.task_list import TaskList
from pipeline.build.clusters.joined_clusters import join_linked
from pipeline.build.clusters.member_files import merge_members
from pipeline.build.map_stage.map_results import (
    MapOutcome,
    add_up_map_results,
    input_warnings,
    load_map_outcome,
)
from pipeline.build.stages import draw_tasks, link_tasks
from pipeline.build.task_markers import finished
from pipeline.build.task_results import HashResult, MapResult
from pipeline.build.tasks import Job, Task
from pipeline.storage.retries import AT_ONCE
from pipeline.storage.signed_json import read_signed, signed
from schemas.errors import BuildError
from schemas.text.phrases import plural
from schemas.untrusted_json import BuildName

Result = TypeVar("Result")

_LOG: Final = logging.getLogger("thdpack")
_NAMED: Final = 10
"""Maximum number of unfinished tasks that an error names."""


class _MapStageNote(msgspec.Struct):
    """Content of a small work file that is written after the map stage.

    build: digest of inputs, options and version of thdpack; see `build_digest`
    """

    build: BuildName


def map_outcome_of(listed: TaskList) -> MapOutcome:
    """Return the sum of the map tasks' results.

    The first process that calls this function saves the sum, and later processes load it.

    Raises:
        BuildError: map tasks have not finished.
        InputError: an input holds no residue; or --on-invalid was not given, and most letters of an
            input are unknown.
    """
    name, work = f"plan-{listed.digest}.json", listed.work
    note = read_signed(work.content(name), _MapStageNote)
    if note is not None:
        with suppress(BuildError):  # if the saved sum is damaged or missing, compute it again
            return load_map_outcome(work, listed.job(note.build).mapped)
    maps, hashes = listed.maps, listed.hashes
    tasks: list[Task[MapResult | HashResult]] = [*maps, *hashes]
    results = results_of(listed, "map", tasks)
    map_outcome = add_up_map_results(
        listed.options, listed.plan, maps, hashes, results, listed.prepared
    )
    for line in input_warnings(listed.options, listed.plan, results, listed.prepared):
        _LOG.warning("%s", line)
    map_outcome.save(listed.job(map_outcome.build), durable=True)
    with work.written(name) as file:
        file.write(signed({"build": map_outcome.build}))
    return map_outcome


def join_clusters(listed: TaskList, job: Job) -> None:
    """Join clusters that have equal sequences. Link tasks have found pairs of such clusters. The
    first process that calls this function saves the result for the draw and reduce tasks.

    Raises:
        BuildError: link tasks have not finished.
        DatasetError: no record is in the table of clusters.
    """
    if not job.clustered or listed.work.size(job.joined) is not None:
        return
    results = results_of(listed, "link", link_tasks(job, listed.plan.partitions))
    _LOG.warning("%s", join_linked(job, results, durable=True))


def merge_drawn_members(listed: TaskList, job: Job) -> None:
    """Merge the results of the draw tasks, which are lists of the members of clusters (the kept
    records in a cluster). The first process that calls this function saves the merged list for the
    reduce tasks.

    Raises:
        BuildError: draw tasks have not finished.
        DatasetError: the weights of a cluster's members add up to more than the limit.
    """
    if not job.sampled or listed.work.size(job.intervals) is not None:
        return
    tasks = draw_tasks(job, listed.plan.partitions)
    results_of(listed, "draw", tasks)
    merge_members(job, tasks, durable=True)


def results_of(listed: TaskList, stage: str, tasks: Sequence[Task[Result]]) -> list[Result]:
    """Return the results of the tasks of a stage, in order.

    Raises:
        BuildError: some tasks have not finished. The message names these tasks.
    """
    out = listed.out
    with ThreadPoolExecutor(AT_ONCE) as threads:
        # an object store answers slowly, but answers many requests in parallel
        found = list(threads.map(lambda task: finished(task, out), tasks))
    missing = [str(i) for i, result in enumerate(found) if result is None]
    if missing:
        named = ", ".join(missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
        raise BuildError(
            f"{out.where()}: {len(missing)} of {plural(len(tasks), f'{stage} task')} "
            f"{'has' if len(missing) == 1 else 'have'} not finished; run "
            f"{'it' if len(missing) == 1 else 'them'} first "
            f"(--stage {stage} --index N, with N = {named})"
        )
    return [result for result in found if result is not None]
