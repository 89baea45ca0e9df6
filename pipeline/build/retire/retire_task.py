"""A task that searches files of records/ for the records that a list of ids names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges, gather_runs, one_chunk
from pipeline.build.arrays.sequence_hashes import sequence_hashes
from pipeline.build.exclusion.entries import ListedNames, read_entries
from pipeline.build.exclusion.hash_table import HashTable
from pipeline.build.generations.read_records import group_digest, row_groups
from pipeline.build.task_results import WorkFile
from pipeline.build.tasks import OnBytes
from pipeline.reader.arrow_columns import numbers
from pipeline.storage.folder import Folder
from schemas.manifest_entries import RecordsEntry
from schemas.records import Status

_NAMES: Final = ("id", "accession", "name")
"""Columns with names of a record. An id in a list of ids may be any of them."""
_COLUMNS: Final = ["ordinal", *_NAMES, "status"]


@dataclass(frozen=True, slots=True)
class Matches:
    """N records whose names are in a list of ids.

    ordinal: int64[N]
    id: large_binary[N]
    kept: bool[N], True if the record's status is `kept`
    listed: int64[M], indices of the ids that a record has, ascending
    """

    ordinal: NDArray[np.int64]
    id: pa.Array
    kept: NDArray[np.bool_]
    listed: NDArray[np.int64]

    @classmethod
    def together(cls, parts: list[Matches]) -> Self:
        """Return the matches of several tasks, not sorted."""
        none = np.empty(0, dtype=np.int64)
        empty = gather_runs(none.view(np.uint8), none, none, pa.large_binary())
        return cls(
            np.concatenate([none, *(part.ordinal for part in parts)]),
            pa.concat_arrays([empty, *(part.id for part in parts)]),
            np.concatenate([none.astype(np.bool_), *(part.kept for part in parts)]),
            np.unique(np.concatenate([none, *(part.listed for part in parts)])),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RetireTask:
    """Search files of records/ for the records that a list of ids names.

    ids: work file with the list of ids
    before: number of records that may be retired; only smaller ordinals match
    """

    result_type: ClassVar[type[Matches]] = Matches

    records: tuple[RecordsEntry, ...]
    ids: WorkFile
    before: int
    out: Folder
    work: Folder

    @property
    def name(self) -> str:
        return f"retire-{group_digest(self.records)}"

    def identity(self) -> None:
        """Return None: the task leaves no marker, because it takes less than a second."""


def find_listed(task: RetireTask, on_bytes: OnBytes) -> Matches:
    """Return the matching records of a task's files. One row group is in memory at a time.

    Raises:
        DatasetError: a records/ file is missing, damaged or cannot be read.
        DamagedSpillError: the list of ids is missing or damaged.
    """
    ids = read_entries(task.work, task.ids)
    assert isinstance(ids, ListedNames)
    table = HashTable(ids.hash.view("S16"))
    parts = []
    for entry in task.records:
        for group in row_groups(task.out, entry, _COLUMNS):
            parts.append(_matches(group, ids, table, task.before))
        on_bytes(entry.bytes)
    return Matches.together(parts)


def _matches(group: pa.Table, ids: ListedNames, table: HashTable, before: int) -> Matches:
    """Return the matching records of a row group."""
    ordinal = numbers(one_chunk(group.column("ordinal")), np.int64)
    matched = np.zeros(ordinal.size, dtype=np.bool_)
    listed = []
    for name in _NAMES:
        values, edges = bytes_and_edges(one_chunk(group.column(name)))
        # the hash of a missing name is that of an empty text, which is not in the list
        found = table.find(sequence_hashes(values[: edges[-1]], edges[1:]))
        found[ordinal >= before] = -1
        matched |= found >= 0
        listed.append(ids.match[found[found >= 0]])
    at = np.flatnonzero(matched)
    values, edges = bytes_and_edges(one_chunk(group.column("id")))
    status = one_chunk(group.column("status"))
    words = status.dictionary.to_pylist()
    kept = words.index(Status.KEPT) if Status.KEPT in words else -1
    return Matches(
        ordinal[at],
        gather_runs(values, edges[:-1][at], edges[1:][at], pa.large_binary()),
        numbers(status.indices, np.int32)[at] == kept,
        np.unique(np.concatenate(listed)),
    )
