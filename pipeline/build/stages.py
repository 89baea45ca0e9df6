"""The task list of a build, stage by stage: a function of the plan, so that any machine that knows the plan knows every task.

Tasks of one stage are independent of each other; each stage needs the one before it: map (and hash), reduce, rests level by level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pipeline.build.build_plan import Plan
from pipeline.build.options import DatasetOptions
from pipeline.build.tasks import HashTask, Job, MapTask, ReduceTask, RestTask
from pipeline.inputs.find import every_range
from pipeline.storage.folder import Folder

RESTS_TOGETHER: Final = 64
"""How many partitions' rests are packed by one task."""


def map_tasks(planned: Plan, options: DatasetOptions, work: Folder) -> list[MapTask]:
    """One for each range of the plan."""
    return [
        MapTask(
            index=i,
            source=planned.sources[s],
            begin=begin,
            end=end,
            partitions=planned.partitions,
            options=options,
            work=work,
        )
        for i, (s, begin, end) in enumerate(planned.ranges)
    ]


def hash_tasks(planned: Plan, work: Folder, *, every: bool = False) -> list[HashTask]:
    """For inputs that map tasks do not read from first byte to last, or for every input."""
    ranges = every_range(planned.sources) if every else planned.hashed
    return [
        HashTask(index=n, source=planned.sources[i], begin=begin, end=end, work=work)
        for n, (i, begin, end) in enumerate(ranges)
    ]


def reduce_tasks(job: Job, partitions: int) -> list[ReduceTask]:
    """One for each partition."""
    return [ReduceTask(job=job, partition=p, partitions=partitions) for p in range(partitions)]


def rest_levels(job: Job, rests: Sequence[str]) -> Iterator[list[RestTask]]:
    """Tasks that pack what the partitions left, so many at a time that memory stays bounded; each level needs the one before it."""
    level = 0
    while len(rests) > RESTS_TOGETHER:
        groups = [
            tuple(rests[i : i + RESTS_TOGETHER]) for i in range(0, len(rests), RESTS_TOGETHER)
        ]
        tasks = [
            RestTask(job=job, level=level, index=i, rests=group, final=False)
            for i, group in enumerate(groups)
        ]
        yield tasks
        rests = [task.rest for task in tasks]
        level += 1
    yield [RestTask(job=job, level=level, index=0, rests=tuple(rests), final=True)]
