"""The task of the link stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pipeline.build.task_results import LinkResult
from pipeline.build.tasks import Job
from pipeline.storage.folder import Folder


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkTask:
    """Find the cluster of each record of one partition."""

    result_type: ClassVar[type[LinkResult]] = LinkResult

    job: Job
    partition: int
    partitions: int

    @property
    def name(self) -> str:
        return f"link-{self.partition:06d}"

    @property
    def work(self) -> Folder:
        return self.job.work

    @property
    def links(self) -> str:
        """Name of the link file, in the work folder."""
        return f"{self.name}.arrow"

    @property
    def by_sequence(self) -> bool:
        """True if the table's members are hashes of sequences (`--clusters mmseqs:0.5`). False if
        they are ids, from a file."""
        return self.job.clusters.bytes == 0

    def identity(self) -> dict[str, Any]:
        return {
            "build": self.job.build,
            "partition": self.partition,
            "table": self.job.clusters.file.xxh3_128,
        }
