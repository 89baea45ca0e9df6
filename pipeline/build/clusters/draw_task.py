"""The task of the draw stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from pipeline.build.task_results import DrawResult
from pipeline.build.tasks import PartitionTask

_PARTITIONS_TOGETHER: Final = 16
"""A range of cluster keys has about as many members as this number of partitions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawTask(PartitionTask):
    """Find the members of clusters in one partition. A member is a kept record in a cluster."""

    result_type: ClassVar[type[DrawResult]] = DrawResult

    @property
    def name(self) -> str:
        return f"draw-{self.partition:06d}"

    @property
    def members(self) -> str:
        """Name of the file of members, in the work folder."""
        return f"{self.name}.arrow"

    @property
    def key_ranges(self) -> int:
        """Number of ranges of cluster keys. The file of members is sorted into these ranges."""
        return -(-self.partitions // _PARTITIONS_TOGETHER)
