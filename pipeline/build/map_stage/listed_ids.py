"""Find the ids in lists of ids (`--exclude`) that no record has.

Each map task notes the ids that its records have. An id that no task notes may be misspelt, so the
build prints some of these ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.build.exclusion.entries import ListedNames, read_entries
from pipeline.build.exclusion.hash_table import HashTable
from pipeline.build.exclusion.name_index import RecordNames
from pipeline.build.task_results import MapResult, PreparedFile
from pipeline.storage.folder import Folder

_SHOWN: Final = 5
"""Maximum number of ids that a note names."""


class NotedIds:
    """The ids of each list that the records of a map task have."""

    def __init__(self, prepared: Sequence[PreparedFile], work: Folder) -> None:
        """
        Args:
            prepared: files that options name.
        Raises:
            DamagedSpillError: a work file is missing or damaged.
        """
        self._lists = [_entries(file, work) for file in _id_lists(prepared)]
        self._tables = [HashTable(entries.hash.view("S16")) for entries in self._lists]
        self._noted = [np.zeros(entries.match.size, dtype=np.bool_) for entries in self._lists]

    def add(self, ids: pa.Array, stated: pa.Array) -> None:
        """Note the ids of N records.

        Args:
            ids, stated: large_binary[N], ids and packed headers (see `pack_headers`).
        """
        if not self._lists:
            return
        names = RecordNames(ids, stated)
        for entries, table, noted in zip(self._lists, self._tables, self._noted, strict=True):
            for hashes in names.compared_with(entries):
                found = table.find(hashes)
                noted[entries.match[found[found >= 0]]] = True

    @property
    def indices(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the noted ids of each list."""
        return tuple(tuple(np.flatnonzero(noted).tolist()) for noted in self._noted)


def unmatched_ids(
    prepared: Sequence[PreparedFile], work: Folder, results: Sequence[MapResult]
) -> Iterator[str]:
    """Yield a line for each list with ids that no record has.

    Args:
        prepared: files that options name.
        results: results of all map tasks.
    Raises:
        DamagedSpillError: a work file is missing or damaged.
    """
    for number, file in enumerate(_id_lists(prepared)):
        entries = _entries(file, work)
        noted = np.zeros(entries.match.size, dtype=np.bool_)
        for result in results:
            noted[list(result.listed[number])] = True
        missing = np.flatnonzero(~noted)
        if missing.size:
            names = [entries.id(i).decode("utf-8", "backslashreplace") for i in missing[:_SHOWN]]
            more = ", …" if missing.size > _SHOWN else ""
            yield (
                f"--exclude {file.name}: no record has {missing.size:,} of its {noted.size:,} ids: "
                f"{', '.join(names)}{more}"
            )


def _id_lists(prepared: Sequence[PreparedFile]) -> list[PreparedFile]:
    return [file for file in prepared if file.is_id_list]


def _entries(file: PreparedFile, work: Folder) -> ListedNames:
    entries = read_entries(work, file.file)
    assert isinstance(entries, ListedNames)
    return entries
