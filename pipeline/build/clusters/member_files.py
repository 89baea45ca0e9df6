"""Files of the draw stage (`--sample-clusters`), in the format of spills (see `spill_files`).

1. A draw task writes the members of its partition (the kept records in clusters), sorted into
   ranges of cluster keys.
2. `merge_members` reads the members of all partitions, one range after another. It computes the
   interval of each member in its cluster (see `draw`), and writes the intervals, sorted into
   partitions, as one file.
3. A reduce task reads the intervals of its partition, and draws members for each variant.

Step 2 needs memory for one range. A range has about as many members as 16 partitions, or more if
one of its clusters is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import number_array
from pipeline.build.clusters.draw import MOST_WEIGHT, Intervals, intervals_of
from pipeline.build.clusters.draw_task import DrawTask
from pipeline.build.spill.spill_files import create_spill
from pipeline.build.spill.spilled_partition import find_partition
from pipeline.build.task_results import WorkFile
from pipeline.build.tasks import Job
from pipeline.reader.arrow_columns import numbers
from pipeline.storage.folder import Folder
from schemas.errors import DamagedSpillError, DatasetError

_MEMBERS: Final = pa.schema(
    [("cluster", pa.uint64()), ("ordinal", pa.int64()), ("weight", pa.uint64())]
)
_INTERVALS: Final = pa.schema(
    [
        ("ordinal", pa.int64()),
        ("cluster", pa.uint64()),
        ("begin", pa.uint64()),
        ("weight", pa.uint64()),
        ("total", pa.uint64()),
    ]
)


def write_members(
    task: DrawTask,
    cluster: NDArray[np.uint64],
    ordinal: NDArray[np.int64],
    weight: NDArray[np.uint64],
) -> WorkFile:
    """Write the M members of a task's partition.

    Args:
        cluster: uint64[M], key of each member's cluster.
        ordinal: int64[M], ordinal of each member: its number among all input records.
        weight: uint64[M], weight of each member.
    Raises:
        BuildError: the file cannot be written.
    """
    order = np.argsort(cluster)
    columns = (cluster[order], ordinal[order], weight[order])
    width = -(-(1 << 64) // task.key_ranges)
    firsts = np.array([width * i for i in range(task.key_ranges)], dtype=np.uint64)
    edges = [*np.searchsorted(columns[0], firsts).tolist(), cluster.size]
    batch = _batch(_MEMBERS, columns)
    with create_spill(task.work, task.members, task.key_ranges, _MEMBERS) as spill:
        spill.write([batch.slice(a, b - a) for a, b in zip(edges[:-1], edges[1:], strict=True)])
    assert spill.written is not None
    return spill.written


def merge_members(job: Job, tasks: Sequence[DrawTask], *, durable: bool = False) -> None:
    """Compute the intervals of all members. Save them for the job's reduce tasks.

    Args:
        tasks: all draw tasks, in the order of partitions.
        durable: True to sync the file, so that it survives a power cut. This is needed if other
            machines run tasks later.
    Raises:
        DatasetError: the weights of a cluster's members add up to more than MOST_WEIGHT.
        DamagedSpillError: a file of members is damaged.
        BuildError: the file cannot be written.
    """
    names = [task.members for task in tasks]
    key_ranges = tasks[0].key_ranges
    with create_spill(job.work, job.intervals, len(tasks), _INTERVALS) as spill:
        for key_range in range(key_ranges):
            found = find_partition(job.work, names, key_range, key_ranges, _MEMBERS)
            spill.write(_merged(job, list(found.batches()), len(tasks)))
    if durable:
        job.work.sync([job.intervals])


def _merged(
    job: Job, found: Sequence[tuple[int, pa.RecordBatch]], partitions: int
) -> list[pa.RecordBatch]:
    """Return the intervals of a range of clusters: one batch for each partition.

    Args:
        found: batches of the range's members, each with the number of its partition.
    """
    cluster, ordinal, weight = _columns([batch for _, batch in found], _MEMBERS)
    sizes = [batch.num_rows for _, batch in found]
    partition = np.repeat(np.array([p for p, _ in found], dtype=np.int64), sizes)
    order = np.lexsort((ordinal, cluster))
    members, largest = intervals_of(cluster[order], weight[order])
    if largest > MOST_WEIGHT:
        raise DatasetError(
            f"--{job.clusters.option} {job.clusters.name}: the weights of a cluster add up to more "
            f"than {MOST_WEIGHT >> 30:,}; divide all weights by the same number"
        )
    by_partition = np.argsort(partition[order], kind="stable")
    columns = (ordinal[order], members.cluster, members.begin, members.weight, members.total)
    batch = _batch(_INTERVALS, [column[by_partition] for column in columns])
    edges = np.searchsorted(partition[order][by_partition], np.arange(partitions + 1)).tolist()
    return [batch.slice(a, b - a) for a, b in zip(edges[:-1], edges[1:], strict=True)]


@dataclass(frozen=True, slots=True)
class PartitionMembers:
    """The M members in a partition.

    ordinal: int64[M], ascending
    intervals: interval of each member
    """

    ordinal: NDArray[np.int64]
    intervals: Intervals

    @property
    def clusters(self) -> int:
        """Number of clusters whose first member is in this partition."""
        return int(np.count_nonzero(self.intervals.begin == 0))

    def rows(self, name: str, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of each member in `ordinals`, int64[M].

        Args:
            name: name of the file of intervals, for the error.
            ordinals: int64[N], ordinals of the partition's records, ascending.
        Raises:
            DamagedSpillError: a member is not a record of the partition.
        """
        at = np.searchsorted(ordinals, self.ordinal)
        if not np.array_equal(np.append(ordinals, -1)[at], self.ordinal):
            raise DamagedSpillError(name)
        return at


def load_members(work: Folder, name: str, partition: int, partitions: int) -> PartitionMembers:
    """Return the members of a partition.

    Args:
        name: name of the file of intervals.
    Raises:
        DamagedSpillError: the file is damaged.
        FileNotFoundError, ThdpackError: the file is missing or cannot be read.
    """
    found = find_partition(work, [name], partition, partitions, _INTERVALS)
    columns = _columns([batch for _, batch in found.batches()], _INTERVALS)
    order = np.argsort(columns[0])
    ordinal, cluster, begin, weight, total = (column[order] for column in columns)
    return PartitionMembers(ordinal, Intervals(cluster, begin, weight, total))


def _batch(schema: pa.Schema, columns: Sequence[NDArray[Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([number_array(column) for column in columns], schema=schema)


def _columns(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> list[NDArray[Any]]:
    """Return the columns of several batches as arrays."""
    found = []
    for i, field in enumerate(schema):
        dtype = np.int64 if field.type == pa.int64() else np.uint64
        parts = (numbers(batch.column(i), dtype) for batch in batches)
        found.append(np.concatenate([np.empty(0, dtype=dtype), *parts]))
    return found
