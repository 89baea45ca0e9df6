"""A draw task: find the members of clusters in a partition. Each variant draws among them.

A member of a cluster is a kept record in the cluster. Excluded records and duplicates are not
members. The draw task recognises excluded records and duplicates in the same way as the reduce task
of the partition.
"""

from __future__ import annotations

import numpy as np

from pipeline.build.clusters.draw_task import DrawTask
from pipeline.build.clusters.member_files import write_members
from pipeline.build.reduce_stage.deduplicate import KEPT
from pipeline.build.reduce_stage.read_partition import read_partition
from pipeline.build.task_results import DrawResult
from pipeline.build.tasks import OnBytes


def draw_partition(task: DrawTask, on_bytes: OnBytes) -> DrawResult:
    """Write the members of a partition; return their number.

    Raises:
        DamagedSpillError: a spill or a link file is damaged.
        BuildError: the file cannot be written.
    """
    rows = read_partition(task, on_bytes).partition.rows
    member = np.flatnonzero((rows.status == KEPT) & (rows.cluster != 0))
    written = write_members(task, rows.cluster[member], rows.ordinal[member], rows.weight[member])
    return DrawResult(members=written, count=member.size)
