"""Choose the records of each variant. A variant is a pass over the kept records with its own seed.

With --sample-clusters, a variant has one member (a kept record) of each cluster. Kept records
without a cluster are in every variant.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import variant_seed
from pipeline.build.clusters.member_files import load_members
from pipeline.build.tasks import ReduceTask

_NOT_DRAWN = np.int8(-1)
"""Status code of a member that a variant does not draw."""


class DrawnRecords:
    """The records of a partition that each variant holds.

    row: int64[M], indices of the records that are members of clusters
    clusters: number of clusters whose first member is in the partition
    """

    def __init__(
        self, task: ReduceTask, status: NDArray[np.int8], ordinal: NDArray[np.int64]
    ) -> None:
        """Read the intervals of the members.

        Args:
            status: int8[N], status of each record of the partition.
            ordinal: int64[N], number of each record among all input records, ascending.
        Raises:
            DamagedSpillError: the file of the intervals is damaged.
        """
        job = task.job
        self._status = status
        self._seed = job.options.seed
        self.row = np.empty(0, dtype=np.int64)
        self.clusters = 0
        self._intervals = None
        if job.sampled:
            members = load_members(job.work, job.intervals, task.partition, task.partitions)
            self.row = members.rows(job.intervals, ordinal)
            self.clusters = members.clusters
            self._intervals = members.intervals

    def status_in(self, variant: int) -> NDArray[np.int8]:
        """Return the status of each record in a variant, int8[N]. The status is -1 for members that
        the variant does not draw."""
        if self._intervals is None:
            return self._status
        status = self._status.copy()
        status[self.row[~self._drawn(variant)]] = _NOT_DRAWN
        return status

    def not_drawn(self) -> NDArray[np.int64]:
        """Return the indices of the members that variant 0 does not draw, int64[K]."""
        return self.row if self._intervals is None else self.row[~self._drawn(0)]

    def _drawn(self, variant: int) -> NDArray[np.bool_]:
        assert self._intervals is not None
        return self._intervals.drawn(variant_seed(self._seed, variant))
