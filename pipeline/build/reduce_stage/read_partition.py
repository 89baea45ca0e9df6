"""Read a partition: mark excluded records and duplicates, and give each kept record its split."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.build.clusters.draw_task import DrawTask
from pipeline.build.clusters.joined_clusters import load_joined
from pipeline.build.clusters.link_files import RecordClusters
from pipeline.build.exclusion.exclusion_index import ExclusionIndex, load_exclusions
from pipeline.build.reduce_stage.exclude_records import RecordExclusion
from pipeline.build.reduce_stage.large_partition import LargePartition
from pipeline.build.reduce_stage.spilled_records import SpilledRecords
from pipeline.build.reduce_stage.whole_partition import Partition, whole_partition
from pipeline.build.tasks import OnBytes, ReduceTask


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """A partition, and the entries of --exclude with the counts of excluded records; None without
    --exclude."""

    partition: Partition
    index: ExclusionIndex | None
    exclusion: RecordExclusion | None


def read_partition(task: DrawTask | ReduceTask, on_bytes: OnBytes) -> ReadPartition:
    """Read the partition of a task.

    Raises:
        DamagedSpillError: a spill is damaged.
    """
    options = task.job.options
    clusters = None
    if task.links is not None:
        clusters = RecordClusters(task.work, task.links, load_joined(task.job))
    spilled = SpilledRecords(task, clusters)
    index = load_exclusions(task.job.prepared, task.work, options.exclude_coverage)
    exclusion = None if index is None else RecordExclusion(index, options)
    partition = (
        LargePartition(spilled, options, on_bytes, exclusion)
        if spilled.large
        else whole_partition(next(spilled.runs()), options, on_bytes, exclusion)
    )
    return ReadPartition(partition, index, exclusion)
