"""Runs of the hash index. A run is a file of sorted sequence hashes. Each hash has the ordinal of
its record (the record's number among all input records).

The index has several runs, as in a log-structured merge tree. Each append adds a run for the
records that the previous build or append wrote, and small runs are merged (`index_task.py`). A
lookup bisects each run whose range of hashes includes hashes to look up. On a disk, runs are mapped
into memory, so a lookup reads only the pages that it needs; `check_runs` checks them once before
all lookups.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import number_array
from pipeline.build.hash_index.hash_columns import HashColumns, sorted_by_hash
from pipeline.reader.arrow_columns import numbers
from pipeline.storage.file_hash import hash_file
from pipeline.storage.folder import Folder
from schemas.errors import DamagedIndexError, InputError
from schemas.untrusted_json import Count, FileName, Hash

INDEX: Final = "index"
"""Folder of the runs, in the dataset's folder."""
_CHECK_THREADS: Final = 4
_SCHEMA: Final = pa.schema([("high", pa.uint64()), ("low", pa.uint64()), ("ordinal", pa.int64())])


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexRun:
    """Entry of a run. `name` is relative to the dataset's folder.

    apart: True if the run is one of several that were written for the same build. The hashes of
        these runs are in different ranges, except a few, so a lookup skips most of the runs.
    """

    name: FileName
    bytes: Count
    rows: Count
    xxh3_128: Hash
    apart: bool = False


def write_run(out: Folder, name: str, parts: list[HashColumns]) -> IndexRun:
    """Sort hashes, and write them as a run. Empty the list `parts`, to free memory.

    Raises:
        BuildError: the file cannot be written.
    """
    run = sorted_by_hash(parts)
    arrays = [number_array(each) for each in (run.high, run.low, run.ordinal)]
    # not synced: after a power cut, the hash shows whether the run must be written again
    with out.written(name, durable=False) as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
    return IndexRun(name=name, bytes=file.bytes, rows=run.ordinal.size, xxh3_128=file.xxh3_128)


_fetched: dict[str, HashColumns] = {}
"""Runs that this process has fetched from a store, by URL. A run never changes."""


def read_run(out: Folder, run: IndexRun) -> HashColumns:
    """Return the content of a run, sorted by `high`, then `low`.

    A process fetches a run from a store only once. A run on a disk is mapped again for each lookup,
    so that the pages of all runs together do not count as memory.

    Raises:
        DamagedIndexError: the file is missing or damaged.
    """
    if out.local:
        return _read(out, run)
    place = out.where(run.name)
    if place not in _fetched:
        _fetched[place] = _read(out, run)
    return _fetched[place]


def _read(out: Folder, run: IndexRun) -> HashColumns:
    try:
        buffer = out.buffer(run.name)
    except FileNotFoundError as error:
        raise DamagedIndexError(out.where(run.name)) from error
    # `check_runs` has checked local files. Hashing the mapping here would count it as memory.
    sound = out.local or xxhash.xxh3_128_hexdigest(buffer) == run.xxh3_128
    if buffer.size != run.bytes or not sound:
        raise DamagedIndexError(out.where(run.name))
    batch = pa.ipc.open_file(buffer).get_batch(0)
    return HashColumns(
        numbers(batch.column(0), np.uint64),
        numbers(batch.column(1), np.uint64),
        numbers(batch.column(2), np.int64),
    )


def check_runs(out: Folder, runs: Sequence[IndexRun]) -> None:
    """Read all runs in a local folder, and compare them with their hashes.

    Runs in a store are checked when they are fetched.

    Raises:
        DamagedIndexError: a run is missing or damaged.
    """
    if not out.local:
        return
    with ThreadPoolExecutor(_CHECK_THREADS) as threads:
        for run, sound in zip(runs, threads.map(partial(_is_sound, out), runs), strict=True):
            if not sound:
                raise DamagedIndexError(out.where(run.name))


def _is_sound(out: Folder, run: IndexRun) -> bool:
    try:
        return hash_file(out.where(run.name)) == (run.bytes, run.xxh3_128)
    except InputError:  # missing or unreadable
        return False


@dataclass(frozen=True, slots=True)
class EarlierRecords:
    """The kept records of all earlier generations.

    out: the dataset's folder
    """

    out: Folder
    runs: Sequence[IndexRun]

    def find(self, hashes: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the ordinal of the kept record with each hash, int64[N]; -1 for a new hash.

        Args:
            hashes: HASH[N].
        Raises:
            DamagedIndexError: a run is missing or damaged.
        """
        return _find_ordinals(self.out, self.runs, hashes)


def _find_ordinals(
    out: Folder, runs: Sequence[IndexRun], hashes: NDArray[np.void]
) -> NDArray[np.int64]:
    """See `EarlierRecords.find`.

    Raises:
        DamagedIndexError: a run is missing or damaged.
    """
    order = np.argsort(hashes["high"].astype(np.uint64))  # bisection of sorted values is faster
    high = hashes["high"][order].astype(np.uint64)
    low = hashes["low"][order].astype(np.uint64)
    found = np.full(hashes.size, -1, dtype=np.int64)
    for run in runs:
        columns = read_run(out, run)
        # the hashes of a run may be in a small range (see `IndexRun.apart`)
        begin = np.searchsorted(high, columns.high[0]) if columns.high.size else high.size
        end = np.searchsorted(high, columns.high[-1], side="right") if begin < high.size else begin
        at, ordinal = _find(columns, high[begin:end], low[begin:end])
        found[order[begin:end][at]] = ordinal
    return found


def _find(
    run: HashColumns, high: NDArray[np.uint64], low: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the hashes that a run has, and the ordinals, both int64[M].

    Args:
        high, low: uint64[N], halves of the hashes, sorted by `high`.
    """
    place = np.searchsorted(run.high, high)
    left = np.flatnonzero(place < run.high.size)
    place = place[left]
    indices, ordinals = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    while left.size:  # one pass, unless the run has different hashes with the same upper half
        same = run.high[place] == high[left]
        left, place = left[same], place[same]
        equal = run.low[place] == low[left]
        indices.append(left[equal])
        ordinals.append(run.ordinal[place[equal]])
        left, place = left[~equal], place[~equal] + 1
        inside = place < run.high.size
        left, place = left[inside], place[inside]
    return np.concatenate(indices), np.concatenate(ordinals)
