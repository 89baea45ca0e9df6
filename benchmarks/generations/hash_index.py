"""Measure the hash index of `thdpack append` for many records: time to open it, lookups, memory.

    python -m benchmarks.generations.hash_index --records 200_000_000

The hash index lists the hashes of the kept sequences of a dataset. It consists of runs, which are
sorted files. The benchmark writes an index of random hashes in a temporary folder. It then measures
a new process: the time to check and open all runs, and the time of lookups. Half of the lookups
find a record. The memory is the peak of the process, including all pages of mapped files that it
read.
"""

from __future__ import annotations

import pickle
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from pipeline.build.append.update_index import MOST_ROWS
from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.build.hash_index.hash_columns import HashColumns
from pipeline.build.hash_index.index_runs import (
    EarlierRecords,
    IndexRun,
    check_runs,
    write_run,
)
from pipeline.storage.open_folder import folder_of

_MEASURE = (
    "import sys; from benchmarks.generations.hash_index import measure; measure(*sys.argv[1:])"
)


@dataclass(frozen=True, kw_only=True)
class Options:
    records: int = 200_000_000
    """Number of records in the index."""
    lookups: int = 2_000_000
    """Number of hashes to look up."""
    folder: Path = Path(tempfile.gettempdir())
    """Folder for the temporary index."""


def write_index(folder: Path, records: int, lookups: int) -> None:
    """Write an index and the hashes to look up."""
    rng = np.random.default_rng(0)
    out, runs, wanted = folder_of(folder), [], []
    for number, first in enumerate(range(0, records, MOST_ROWS)):
        rows = min(MOST_ROWS, records - first)
        high, low = rng.integers(0, 1 << 64, (2, rows), dtype=np.uint64)
        ordinal = np.arange(first, first + rows)
        runs.append(write_run(out, f"index/{number:016x}.arrow", [HashColumns(high, low, ordinal)]))
        chosen = rng.choice(rows, max(1, lookups * rows // (2 * records)), replace=False)
        found = np.empty(chosen.size, dtype=HASH)
        found["high"], found["low"] = high[chosen], low[chosen]
        wanted.append(found)
    new = np.empty(lookups - sum(part.size for part in wanted), dtype=HASH)
    new["high"], new["low"] = rng.integers(0, 1 << 64, (2, new.size), dtype=np.uint64)
    wanted.append(new)
    (folder / "runs.pickle").write_bytes(pickle.dumps(runs))
    # as bytes, because np.concatenate would change the byte order of HASH
    rows = np.concatenate([part.view(np.uint8).reshape(-1, HASH.itemsize) for part in wanted])
    np.save(folder / "wanted.npy", rng.permutation(rows))


def measure(folder: str, lookups: str) -> None:
    """Print the times and the memory of a process that opens the index and looks up hashes."""
    out = folder_of(folder)
    runs: list[IndexRun] = pickle.loads(Path(folder, "runs.pickle").read_bytes())
    wanted = np.load(Path(folder, "wanted.npy")).reshape(-1).view(HASH)
    started = time.perf_counter()
    check_runs(out, runs)
    earlier = EarlierRecords(out, runs)
    earlier.find(wanted[:1])
    opened = time.perf_counter()
    found = earlier.find(wanted)
    looked_up = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    size = sum(run.bytes for run in runs) / 1e9
    print(
        f"{sum(run.rows for run in runs):,} records in {len(runs)} runs, {size:.2f} GB: checked "
        f"and opened in {opened - started:.2f} s, {int(lookups):,} lookups in "
        f"{looked_up - opened:.2f} s ({np.count_nonzero(found >= 0):,} found), peak {peak:.2f} GiB"
    )


def main(options: Options) -> None:
    folder = options.folder / "thdpack-hash-index"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_index(folder, options.records, options.lookups)
    command = [sys.executable, "-c", _MEASURE, str(folder), str(options.lookups)]
    subprocess.run(command, check=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(tyro.cli(Options))
