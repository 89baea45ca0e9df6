"""The tasks of each stage of a build. All machines derive the same tasks from the plan.

Tasks run in this order:

1. prepare tasks: convert the files that options name
2. map and hash tasks
3. search tasks, for option values that begin with `mmseqs:`
4. link tasks, with --clusters or --sample-clusters
5. draw tasks, with --sample-clusters
6. reduce tasks
7. rest tasks, in one or more levels: each packs the sequences of several rests

A rest is a file of sequences that did not fill a bucket. The tasks of one stage, or of one level,
do not depend on each other.

A partition is a subset of the records, chosen by hash. A variant is a pass over the kept records
with its own seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pipeline.build.build_plan import Plan
from pipeline.build.clusters.draw_task import DrawTask
from pipeline.build.clusters.link_task import LinkTask
from pipeline.build.map_stage.hash_task import HashTask
from pipeline.build.named_files.prepare_task import PrepareTask
from pipeline.build.options import DatasetOptions
from pipeline.build.search_stage.search_tasks import ClusterTask, SearchTask
from pipeline.build.task_results import PreparedFile
from pipeline.build.tasks import Job, MapTask, ReduceTask, RestTask
from pipeline.inputs.find import every_range
from pipeline.inputs.source import ANYTHING, Allowed
from pipeline.storage.folder import Folder

RESTS_TOGETHER: Final = 64
"""Maximum number of rests that one task packs."""


def prepare_tasks(planned: Plan, work: Folder) -> list[PrepareTask]:
    """Return a task for each file that an option names."""
    return [
        PrepareTask(index=i, file=file, work=work) for i, file in enumerate(planned.named_files)
    ]


def map_tasks(
    planned: Plan,
    options: DatasetOptions,
    work: Folder,
    allowed: Allowed = ANYTHING,
    *,
    prepared: tuple[PreparedFile, ...] = (),
) -> list[MapTask]:
    """Return a map task for each range of the inputs that the plan lists.

    Args:
        prepared: results of the prepare tasks.
    """
    return [
        MapTask(
            index=i,
            source=planned.sources[s],
            begin=begin,
            end=end,
            partitions=planned.partitions,
            options=options,
            work=work,
            prepared=prepared,
            allowed=allowed,
        )
        for i, (s, begin, end) in enumerate(planned.ranges)
    ]


def hash_tasks(planned: Plan, work: Folder, *, every: bool = False) -> list[HashTask]:
    """Return tasks that hash the input tables. With `every`, return tasks that hash all inputs.

    Map tasks hash all inputs except tables. Map tasks read a table by columns, so they cannot hash
    the bytes of the table.
    """
    ranges = every_range(planned.sources) if every else planned.hashed
    return [
        HashTask(index=n, source=planned.sources[i], begin=begin, end=end, work=work)
        for n, (i, begin, end) in enumerate(ranges)
    ]


def search_tasks(job: Job, planned: Plan, threads: int) -> list[SearchTask | ClusterTask]:
    """Return a task for each value of --exclude, --clusters or --sample-clusters that begins with
    `mmseqs:`."""
    return [
        (SearchTask if file.option == "exclude" else ClusterTask)(
            job=job, index=i, file=file, partitions=planned.partitions, threads=threads
        )
        for i, file in enumerate(planned.named_files)
        if file.mmseqs
    ]


def link_tasks(job: Job, partitions: int) -> list[LinkTask]:
    """Return a link task for each partition; [] without a table of clusters."""
    if not job.clustered:
        return []
    return [LinkTask(job=job, partition=p, partitions=partitions) for p in range(partitions)]


def draw_tasks(job: Job, partitions: int) -> list[DrawTask]:
    """Return a draw task for each partition; [] without --sample-clusters."""
    if not job.sampled:
        return []
    return [DrawTask(job=job, partition=p, partitions=partitions) for p in range(partitions)]


def reduce_tasks(job: Job, partitions: int) -> list[ReduceTask]:
    """Return a reduce task for each partition."""
    return [ReduceTask(job=job, partition=p, partitions=partitions) for p in range(partitions)]


def rest_levels(job: Job, reduces: Sequence[ReduceTask]) -> Iterator[list[RestTask]]:
    """Yield levels of tasks that pack the rests of reduce tasks.

    A task packs at most RESTS_TOGETHER rests of one variant, to bound its memory. The first level
    packs the rests of `reduces`. Each later level packs the rests that the previous level wrote.
    The last level has one task for each variant.
    """
    rests = {
        variant: [task.rest(variant) for task in reduces if not task.final]
        for variant in job.variants
    }
    level = 0
    while any(rests.values()):
        tasks: list[RestTask] = []
        for variant, names in rests.items():
            groups = [names[i : i + RESTS_TOGETHER] for i in range(0, len(names), RESTS_TOGETHER)]
            written = [
                RestTask(
                    job=job,
                    level=level,
                    index=i,
                    rests=tuple(group),
                    final=len(groups) == 1,
                    variant=variant,
                )
                for i, group in enumerate(groups)
            ]
            rests[variant] = [task.rest(variant) for task in written if not task.final]
            tasks += written
        yield tasks
        level += 1
