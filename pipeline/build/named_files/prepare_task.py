"""The task that converts a file that an option names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pipeline.build.named_files.named_file import NamedFile
from pipeline.build.task_results import PreparedFile
from pipeline.storage.folder import Folder


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareTask:
    """Convert a file that an option names into a work file."""

    result_type: ClassVar[type[PreparedFile]] = PreparedFile

    index: int
    file: NamedFile
    work: Folder

    @property
    def name(self) -> str:
        return f"prepared-{self.index:06d}"

    @property
    def prepared(self) -> str:
        """Name of the work file, in the work folder."""
        return f"{self.name}.arrow"

    def identity(self) -> dict[str, Any]:
        return {
            "option": self.file.option,
            "url": self.file.url,
            "name": self.file.name,
            "fingerprint": self.file.fingerprint,
            "mmseqs": self.file.mmseqs,
            "similar": [self.file.min_identity, self.file.min_coverage],
        }
