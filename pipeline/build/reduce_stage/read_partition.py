"""Read a partition: mark excluded records and duplicates, and give each kept record its split."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.build.clusters.joined_clusters import load_joined
from pipeline.build.clusters.link_files import RecordClusters
from pipeline.build.exclusion.exclusion_index import ExclusionIndex, load_exclusions
from pipeline.build.hash_index.index_runs import EarlierRecords
from pipeline.build.reduce_stage.exclude_records import RecordExclusion
from pipeline.build.reduce_stage.large_partition import LargePartition
from pipeline.build.reduce_stage.spilled_records import SpilledRecords
from pipeline.build.reduce_stage.whole_partition import Partition, whole_partition
from pipeline.build.tasks import OnBytes, PartitionTask


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """A partition, with its exclusions.

    index: entries of --exclude; None without --exclude
    exclusion: object that counted the excluded records; None without --exclude
    """

    partition: Partition
    index: ExclusionIndex | None
    exclusion: RecordExclusion | None


def read_partition(task: PartitionTask, on_bytes: OnBytes) -> ReadPartition:
    """Read the partition of a task.

    Raises:
        DamagedSpillError: a spill is damaged.
        DamagedIndexError: the hash index is damaged.
    """
    options = task.job.options
    clusters = None
    if task.job.clustered:
        clusters = RecordClusters(task.work, task.links, load_joined(task.job))
    spilled = SpilledRecords(task, clusters)
    index = load_exclusions(task.job.prepared, task.work, options.exclude_coverage)
    exclusion = None if index is None else RecordExclusion(index, options)
    parent, earlier = task.job.parent, None
    if parent is not None and options.dedup != "none":
        earlier = EarlierRecords(task.job.out, parent.index)
    partition = (
        LargePartition(spilled, options, on_bytes, exclusion, earlier)
        if spilled.large
        else whole_partition(next(spilled.runs()), options, on_bytes, exclusion, earlier)
    )
    return ReadPartition(partition, index, exclusion)
