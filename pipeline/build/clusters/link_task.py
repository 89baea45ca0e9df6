"""The task of the link stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pipeline.build.task_results import LinkResult
from pipeline.build.tasks import PartitionTask


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkTask(PartitionTask):
    """Find the cluster of each record of one partition."""

    result_type: ClassVar[type[LinkResult]] = LinkResult

    @property
    def name(self) -> str:
        return f"link-{self.partition:06d}"

    @property
    def by_sequence(self) -> bool:
        """True if the table of clusters lists hashes of sequences (`--clusters mmseqs:0.5`); False
        if it is a file that lists ids."""
        return self.job.clusters.bytes == 0

    def identity(self) -> dict[str, Any]:
        return {**PartitionTask.identity(self), "table": self.job.clusters.file.xxh3_128}
