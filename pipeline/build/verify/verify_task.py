"""The task that verifies files of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.build.task_results import VerifyResult
from pipeline.storage.folder import Folder
from schemas.manifest_entries import RecordsEntry, ShardEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketRules:
    """Rules that every bucket of a dataset obeys. All lengths are in tokens."""

    vocabulary: str
    capacity: int
    longest_span: int
    length_multiple: int
    max_seqs: int
    slots: int


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyTask:
    """Compare some shards and records/ files of a dataset with its manifest.

    sync: True to sync the files after the check, so that they survive a power cut
    """

    result_type: ClassVar[type[VerifyResult]] = VerifyResult

    index: int
    shards: tuple[ShardEntry, ...]
    records: tuple[RecordsEntry, ...]
    rules: BucketRules
    out: Folder
    work: Folder
    sync: bool = False

    @property
    def name(self) -> str:
        return f"verify-{self.index:06d}"

    @property
    def bytes(self) -> int:
        """Number of bytes of all files of the task."""
        return sum(shard.bytes for shard in self.shards) + sum(file.bytes for file in self.records)

    def identity(self) -> None:
        """Return None: no earlier result is reused, because files may have changed since then."""
