"""The tasks of the search stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pipeline.build.named_files.named_file import NamedFile
from pipeline.build.task_results import PreparedFile
from pipeline.build.tasks import JobTask


@dataclass(frozen=True, kw_only=True, slots=True)
class _MmseqsTask(JobTask):
    """Run MMseqs2 on the kept records.

    The result is a copy of `job.prepared[index]` with another work file, `output`.

    index: index of the file in `job.prepared`
    file: the file that `--exclude` names, or the value of `--clusters` or `--sample-clusters`
    partitions: number of partitions of the build
    threads: number of threads of MMseqs2. The result does not depend on this number, so the
        identity does not include it.
    """

    result_type: ClassVar[type[PreparedFile]] = PreparedFile

    index: int
    file: NamedFile
    partitions: int
    threads: int

    @property
    def output(self) -> str:
        """Name of the task's work file."""
        return f"{self.name}.arrow"

    def identity(self) -> dict[str, Any]:
        return {"build": self.job.build, "fingerprint": self.file.fingerprint}


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchTask(_MmseqsTask):
    """Find kept records that are similar to a sequence of `--exclude mmseqs:FILE`.

    The work file lists the similar records.
    """

    @property
    def name(self) -> str:
        return f"similar-{self.index:06d}"

    @property
    def purpose(self) -> str:
        """Name of the phase in which the task runs."""
        return f"MMseqs2 for --exclude {self.file.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterTask(_MmseqsTask):
    """Cluster the kept records: `--clusters mmseqs:0.5` or `--sample-clusters mmseqs:0.5`.

    The work file is the table of clusters.
    """

    @property
    def name(self) -> str:
        return f"clustered-{self.index:06d}"

    @property
    def purpose(self) -> str:
        """Name of the phase in which the task runs."""
        return f"MMseqs2 for --{self.file.option} {self.file.name}"
