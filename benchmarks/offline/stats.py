"""Measure time and memory of `thdpack stats` on a dataset, on FASTA, or on a made-up dataset.

    python -m benchmarks.offline.stats data/swissprot --fasta swissprot.fasta
    python -m benchmarks.offline.stats --rows 60000000 --scratch /tmp/many

The time is the wall-clock time of the whole process, as the median of --rounds runs. Memory is the
peak resident set size, which includes pages of mapped files.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tyro

from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.build.assemble_manifest import manifest_of
from pipeline.build.options import PreprocessOptions
from pipeline.build.reduce_stage.record_rows import RecordRows
from pipeline.build.reduce_stage.write_records import AddedColumns, write_records
from pipeline.build.split_statistics import SplitStatistics
from pipeline.build.task_results import ReduceResult
from pipeline.storage.atomic_write import Finisher
from pipeline.storage.open_folder import folder_of
from schemas.manifest import Manifest
from schemas.manifest_entries import InputEntry
from schemas.records import Status
from schemas.shard import SPLITS

_ROWS_A_FILE = 135_000
"""Number of rows of each records/ file, as in a build of UniRef."""
_STATUSES = tuple(Status)
_KEPT, _DUPLICATE = _STATUSES.index(Status.KEPT), _STATUSES.index(Status.DUPLICATE)
_INPUTS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Measure `thdpack stats`."""

    dataset: tyro.conf.Positional[str] = ""
    """Dataset to report on."""
    fasta: str = ""
    """FASTA to report on."""
    rows: int = 0
    """Number of rows in records/ of a made-up dataset. 0: do not report on a made-up dataset."""
    scratch: Path = Path("/tmp/thdpack-many-records")
    """Folder for the made-up dataset, which takes about 40 bytes per row."""
    rounds: int = 5
    """Number of runs of each command."""


def main() -> None:
    options = tyro.cli(Options)
    if options.dataset:
        _report("dataset, terminal", [options.dataset], options.rounds)
        _report("dataset, HTML", [options.dataset, "--html", os.devnull], options.rounds)
    if options.fasta:
        size = Path(options.fasta).stat().st_size
        seconds = _report("FASTA, terminal", [options.fasta], options.rounds)
        print(f"{'':>20}  {size / seconds / 1e6:,.0f} MB/s")
    if options.rows:
        made = make_records(options.scratch, options.rows)
        rows, stored = (
            sum(entry.rows for entry in made.records),
            sum(entry.bytes for entry in made.records),
        )
        print(
            f"made records/ of {rows:,} rows in {len(made.records):,} files, {stored / 1e9:.2f} GB",
            flush=True,
        )
        _report("many records", [str(options.scratch)], 1)


def _report(name: str, arguments: list[str], rounds: int) -> float:
    """Run `thdpack stats`; print time and memory; return the median time in seconds."""
    taken, peaks = [], []
    for _ in range(rounds):
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline", "stats", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        taken.append(time.perf_counter() - started)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"thdpack stats {' '.join(arguments)} failed")
        peaks.append(usage.ru_maxrss * 1024)
        cpu = usage.ru_utime + usage.ru_stime
    seconds = statistics.median(taken)
    print(
        f"{name:>20}  {seconds:.2f} s ({min(taken):.2f} to {max(taken):.2f}), "
        f"CPU time of the last run {cpu:.2f} s, memory {max(peaks) / 1e6:,.0f} MB",
        flush=True,
    )
    return seconds


def make_records(out: Path, rows: int) -> Manifest:
    """Write a dataset without shards. Lengths are log-normal; one record in four is a duplicate."""
    options = PreprocessOptions(inputs=("made",), out=str(out))
    rng = np.random.default_rng(0)
    names = tuple(f"made{i:02d}.fasta.gz" for i in range(_INPUTS))
    (out / "records").mkdir(parents=True, exist_ok=True)
    parts = []
    for first in range(0, rows, _ROWS_A_FILE):
        parts.append(
            _part(
                rng,
                np.arange(first, min(first + _ROWS_A_FILE, rows)),
                rows,
                f"records/made-{first:010d}.parquet",
                names,
                options,
            )
        )
    edges = np.linspace(0, rows, _INPUTS + 1).astype(np.int64)
    inputs = [
        InputEntry(name=name, bytes=1, xxh3_128="0" * 32, records=int(count))
        for name, count in zip(names, np.diff(edges), strict=True)
    ]
    manifest = manifest_of(options, "0" * 16, inputs, parts)
    totals = {
        split: replace(totals, buckets=-(-totals.tokens // options.capacity))
        for split, totals in manifest.splits.items()
    }
    manifest = replace(manifest, splits=totals)
    (out / "manifest.json").write_text(manifest.to_json())
    return manifest


def _part(
    rng: np.random.Generator,
    ordinal: Any,
    rows: int,
    name: str,
    names: tuple[str, ...],
    options: PreprocessOptions,
) -> ReduceResult:
    """Write one records/ file; return the result that a reduce task would return for it."""
    count = ordinal.size
    residues = np.clip(np.exp(rng.normal(5.7, 0.75, count)), 5, 40_000).astype(np.int64)
    duplicate = rng.random(count) < 0.25
    duplicate[0] = False
    kept = np.flatnonzero(~duplicate)
    original = kept[
        np.maximum(
            np.searchsorted(kept, np.flatnonzero(duplicate))
            - 1
            - rng.integers(0, 3, int(duplicate.sum())),
            0,
        )
    ]
    residues[duplicate] = residues[original]
    edges = np.linspace(0, rows, _INPUTS + 1).astype(np.int64)
    table = RecordRows(
        ordinal=ordinal,
        id=pa.array(
            [f"UniRef90_{i * 2654435761 % (1 << 32):08X}" for i in ordinal.tolist()],
            pa.large_binary(),
        ),
        description=pa.array([b""] * count, pa.large_binary()),
        source=(np.searchsorted(edges, ordinal, side="right") - 1).astype(np.int32),
        offset=ordinal * 400,
        residues=residues,
        unknown=(rng.random(count) < 0.001).astype(np.int64),
        hash=np.frombuffer(rng.bytes(16 * count), dtype=HASH),
        status=np.where(duplicate, _DUPLICATE, _KEPT).astype(np.int8),
        split=np.where(duplicate, -1, 0).astype(np.int8),
        shard=np.where(duplicate, -1, 0).astype(np.int32),
        bucket=(np.arange(count) // 45).astype(np.int32),
        shard_names=["train/made-0.arrow"],
    )
    table.duplicate_of[duplicate] = ordinal[original]
    with Finisher() as finisher:
        entry, _ = write_records(
            [table],
            name,
            names=names,
            added=AddedColumns(),
            out=folder_of(options.out),
            finisher=finisher,
        )
    lengths = np.minimum(residues[kept], options.longest_piece) + 2
    statistics = {
        split: SplitStatistics(capacity=options.capacity, longest=options.longest_span)
        for split in SPLITS
    }
    # there are no shards, but the manifest's counts must agree with records/
    statistics["train"].sequences = int(kept.size)
    statistics["train"].tokens = int(lengths.sum())
    return ReduceResult(
        rest=None,
        records=entry,
        shards=dict.fromkeys(SPLITS, ()),
        statistics=statistics,
        token_counts=(0,) * 256,
        status={_STATUSES[_KEPT]: int(kept.size), _STATUSES[_DUPLICATE]: int(duplicate.sum())},
        residues_in=int(residues.sum()),
    )


if __name__ == "__main__":
    main()
