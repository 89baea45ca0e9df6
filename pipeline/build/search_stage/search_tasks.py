"""The tasks of the search stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pipeline.build.named_files.named_file import NamedFile
from pipeline.build.task_results import PreparedFile
from pipeline.build.tasks import Job
from pipeline.storage.folder import Folder


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchTask:
    """Search the kept records for sequences similar to those of `--exclude mmseqs:FILE`.

    The result is `job.prepared[index]` with another work file, which lists the similar records.

    index: index of the file in `job.prepared`
    file: the file that the option names
    partitions: number of partitions of the build
    threads: number of threads of MMseqs2. The identity does not include `threads`, because the
        result does not depend on it.
    """

    result_type: ClassVar[type[PreparedFile]] = PreparedFile

    job: Job
    index: int
    file: NamedFile
    partitions: int
    threads: int

    @property
    def name(self) -> str:
        return f"similar-{self.index:06d}"

    @property
    def purpose(self) -> str:
        """Name of the phase in which the task runs."""
        return f"search --exclude mmseqs:{self.file.name}"

    @property
    def work(self) -> Folder:
        return self.job.work

    @property
    def similar(self) -> str:
        """Name of the work file that lists the similar records."""
        return f"{self.name}.arrow"

    def identity(self) -> dict[str, Any]:
        return {"build": self.job.build, "fingerprint": self.file.fingerprint}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterTask:
    """Cluster the kept records (`--clusters mmseqs:0.5`). See `SearchTask` for the fields.

    The result is `job.prepared[index]` with another work file, the table of clusters.
    """

    result_type: ClassVar[type[PreparedFile]] = PreparedFile

    job: Job
    index: int
    file: NamedFile
    partitions: int
    threads: int

    @property
    def name(self) -> str:
        return f"clustered-{self.index:06d}"

    @property
    def purpose(self) -> str:
        """Name of the phase in which the task runs."""
        return f"cluster records, --clusters {self.file.name}"

    @property
    def work(self) -> Folder:
        return self.job.work

    @property
    def table(self) -> str:
        """Name of the table of clusters, in the work folder."""
        return f"{self.name}.arrow"

    def identity(self) -> dict[str, Any]:
        return {"build": self.job.build, "fingerprint": self.file.fingerprint}
