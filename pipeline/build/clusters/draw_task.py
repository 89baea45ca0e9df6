"""The task of the draw stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pipeline.build.task_results import DrawResult
from pipeline.build.tasks import Job
from pipeline.storage.folder import Folder

_PARTITIONS_TOGETHER: Final = 16
"""A range of cluster keys has about as many members as this number of partitions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawTask:
    """Find the members of clusters in one partition. A member is a kept record in a cluster."""

    result_type: ClassVar[type[DrawResult]] = DrawResult

    job: Job
    partition: int
    partitions: int

    @property
    def name(self) -> str:
        return f"draw-{self.partition:06d}"

    @property
    def work(self) -> Folder:
        return self.job.work

    @property
    def members(self) -> str:
        """Name of the file of the members, in the work folder."""
        return f"{self.name}.arrow"

    @property
    def links(self) -> str:
        """Name of the partition's link file, in the work folder."""
        return f"link-{self.partition:06d}.arrow"

    @property
    def key_ranges(self) -> int:
        """Number of ranges of cluster keys. The file of the members is sorted into these ranges."""
        return -(-self.partitions // _PARTITIONS_TOGETHER)

    def identity(self) -> dict[str, Any]:
        return {"build": self.job.build, "partition": self.partition}
