"""A task that writes a run of the hash index from records/ files and from smaller runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline.build.arrays.arrow_arrays import one_chunk
from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.build.hash_index.hash_columns import HashColumns
from pipeline.build.hash_index.index_runs import INDEX, IndexRun, read_run, write_run
from pipeline.reader.arrow_columns import numbers
from pipeline.reader.mapped_shard import checked_content
from pipeline.storage.folder import Folder
from schemas.manifest_entries import RecordsEntry
from schemas.records import Status

_COLUMNS: Final = ["ordinal", "hash", "status"]


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexTask:
    """Write a run with the kept records of some records/ files, and the rows of smaller runs."""

    result_type: ClassVar[type[IndexRun]] = IndexRun

    records: tuple[RecordsEntry, ...]
    runs: tuple[IndexRun, ...] = ()
    out: Folder
    work: Folder

    @property
    def name(self) -> str:
        return f"index-{self._digest}"

    @property
    def _digest(self) -> str:
        hashes = [entry.xxh3_128 for entry in self.records]
        hashes += [run.xxh3_128 for run in self.runs]
        return xxhash.xxh3_64_hexdigest(" ".join(hashes).encode())

    @property
    def run(self) -> str:
        """Name of the run, in the dataset's folder."""
        return f"{INDEX}/{self._digest}.arrow"

    def identity(self) -> None:
        """Return None: the task leaves no marker, because `index.json` lists the finished runs."""


def write_index_run(task: IndexTask) -> IndexRun:
    """Write the run of a task.

    Raises:
        DatasetError: a records/ file is missing, damaged or cannot be read.
        DamagedIndexError: a smaller run is damaged.
        BuildError: the run cannot be written.
    """
    parts = [_kept_records(task.out, entry) for entry in task.records]
    parts += [read_run(task.out, run) for run in task.runs]
    return write_run(task.out, task.run, parts)


def _kept_records(out: Folder, entry: RecordsEntry) -> HashColumns:
    """Return hash and ordinal of the kept records in a records/ file.

    pyarrow's `read_table` would import pandas, if it is installed, which takes 0.3 s.
    """
    content = pa.BufferReader(checked_content(out, entry))
    with pq.ParquetFile(content, read_dictionary=["status"]) as file:
        table = file.read(columns=_COLUMNS, use_threads=False)
    status = one_chunk(table.column("status"))
    codes = {word: code for code, word in enumerate(status.dictionary.to_pylist())}
    kept = np.flatnonzero(numbers(status.indices, np.int32) == codes.get(Status.KEPT, -1))
    hashes = numbers(one_chunk(table.column("hash")), HASH)[kept]
    return HashColumns(
        hashes["high"].astype(np.uint64),
        hashes["low"].astype(np.uint64),
        numbers(one_chunk(table.column("ordinal")), np.int64)[kept],
    )
