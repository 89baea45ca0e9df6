"""Requests of the service to an append process, and the answers. Both are sent as JSON."""

from __future__ import annotations

from typing import Optional

import msgspec

from pipeline.executors.registry import ExecutorName
from pipeline.service.dataset_totals import DatasetTotals


class AppendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A batch to append.

    command: words of the command line, which the dataset's lock names
    files: size in bytes of each file, by path or URL
    parent: generation of the dataset when the batch was opened
    """

    command: list[str]
    dataset: str
    files: dict[str, int]
    parent: int
    exclude: tuple[str, ...]
    clusters: Optional[str]  # noqa: UP045 (see PreprocessOptions)
    metadata: Optional[str]  # noqa: UP045
    source_release: Optional[str]  # noqa: UP045
    executor: ExecutorName
    ray_address: Optional[str]  # noqa: UP045
    workers: Optional[int]  # noqa: UP045
    memory: Optional[str]  # noqa: UP045
    allow_nucleotides: bool
    allow_alignment: bool


class Appended(msgspec.Struct, frozen=True, kw_only=True, tag="appended", tag_field="event"):
    """The dataset has all files.

    generation: generation that has the batch; the current one if all files are duplicates
    digest: digest of that generation's manifest
    added: number of files that the generation added
    records: number of records that the generation added
    kept: number of these records that are kept
    duplicates: for each file whose content is already in the dataset or in an earlier file of the
        batch, by path or URL: the name of the earlier file
    dataset: totals of the current generation
    """

    generation: int
    digest: str
    added: int
    records: int
    kept: int
    duplicates: dict[str, str]
    dataset: DatasetTotals


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused", tag_field="event"):
    """Files cannot be appended; nothing was committed.

    messages: reason for each file, by the path or URL that the error names
    """

    messages: dict[str, str]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed", tag_field="event"):
    """The append failed for a reason that no file of the batch caused.

    busy: True if another process writes the dataset
    """

    message: str
    busy: bool


Outcome = Appended | Refused | Failed
