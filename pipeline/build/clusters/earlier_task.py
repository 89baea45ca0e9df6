"""The task that finds the clusters of earlier generations to which new records belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.build.generations.read_records import group_digest
from pipeline.build.task_results import LinkResult, WorkFile
from pipeline.storage.folder import Folder
from schemas.manifest_entries import RecordsEntry


@dataclass(frozen=True, slots=True)
class EarlierClusters:
    """M pairs of an earlier cluster (a cluster of earlier generations) and a cluster of new
    records.

    pairs: uint64[M, 2], key of the earlier cluster and key of the cluster of new records; each pair
        once. The two keys may be equal.
    """

    pairs: NDArray[np.uint64]

    @classmethod
    def together(cls, parts: Sequence[EarlierClusters]) -> Self:
        """Return the pairs of several tasks."""
        none = np.empty((0, 2), dtype=np.uint64)
        return cls(np.unique(np.concatenate([none, *(part.pairs for part in parts)]), axis=0))


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierTask:
    """Search files of records/ for records whose clusters have new records.

    links: results of all link tasks
    table: work file with the table of clusters
    """

    result_type: ClassVar[type[EarlierClusters]] = EarlierClusters

    records: tuple[RecordsEntry, ...]
    links: tuple[LinkResult, ...]
    table: WorkFile
    out: Folder
    work: Folder

    @property
    def name(self) -> str:
        return f"earlier-{group_digest(self.records)}"

    def identity(self) -> None:
        """Return None: the task leaves no marker, because it takes less than a second."""
