"""The task that hashes a range of an input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pipeline.build.task_results import HashResult
from pipeline.inputs.source import Source
from pipeline.storage.folder import Folder


@dataclass(frozen=True, kw_only=True, slots=True)
class HashTask:
    """Hash bytes [begin, end) of an input.

    A build hashes tables in this way, because map tasks read them by columns. All inputs are hashed
    in this way to compare them with an existing dataset.

    counted: whether the bytes count as progress. They do not if another task reads the input at the
        same time.
    """

    result_type: ClassVar[type[HashResult]] = HashResult

    index: int
    source: Source
    begin: int
    end: int
    work: Folder
    counted: bool = True

    @property
    def name(self) -> str:
        return f"hash-{self.index:06d}"

    def identity(self) -> dict[str, Any]:
        return {
            "url": self.source.url,
            "fingerprint": self.source.fingerprint,
            "range": [self.begin, self.end],
            "piece": self.source.piece,
        }
