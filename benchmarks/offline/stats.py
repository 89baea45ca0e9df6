"""Measure time and memory of `thdpack stats` on a dataset, on FASTA, or on a made-up dataset.

    python -m benchmarks.offline.stats data/swissprot --fasta swissprot.fasta
    python -m benchmarks.offline.stats --rows 60000000 --scratch /tmp/many

The time is the wall-clock time of the whole process, as the median of --rounds runs (one run for
the made-up dataset). Memory is the peak resident set size, which includes pages of mapped files.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tyro
from numpy.typing import NDArray

from pipeline.build.assemble_manifest import manifest_of
from pipeline.build.options import PreprocessOptions
from pipeline.build.reduce_stage.write_records import records_writer
from pipeline.build.split_statistics import SplitStatistics
from pipeline.build.task_results import PackedVariant, ReduceResult
from pipeline.storage.file_hash import hash_file
from schemas.manifest import Manifest
from schemas.manifest_entries import InputEntry, RecordsEntry
from schemas.records import Status, records_schema
from schemas.shard import SPLITS

_ROWS_A_FILE = 135_000
"""Number of rows of each records/ file, as in a build of UniRef."""
_STATUSES = tuple(Status)
_KEPT, _DUPLICATE = _STATUSES.index(Status.KEPT), _STATUSES.index(Status.DUPLICATE)
_INPUTS = 40
_TAXA = 200_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Measure `thdpack stats`."""

    dataset: tyro.conf.Positional[str] = ""
    """Dataset to report on."""
    fasta: str = ""
    """FASTA to report on."""
    rows: int = 0
    """Number of rows in records/ of a made-up dataset. With 0, no such dataset is made."""
    scratch: Path = Path("/tmp/thdpack-many-records")
    """Folder for the made-up dataset, which takes about 40 bytes per row."""
    rounds: int = 5
    """Number of runs of each command. The report on a made-up dataset runs only once."""


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
    back = rng.integers(1, 4, int(duplicate.sum()))
    original = kept[np.maximum(np.searchsorted(kept, np.flatnonzero(duplicate)) - back, 0)]
    residues[duplicate] = residues[original]
    duplicate_of = np.zeros(count, dtype=np.int64)
    duplicate_of[duplicate] = ordinal[original]
    # each split after the first has one record in a hundred
    split = np.maximum(rng.integers(0, 100, count) - 100 + len(SPLITS), 0)
    edges = np.linspace(0, rows, _INPUTS + 1).astype(np.int64)
    columns = {
        "ordinal": ordinal,
        "id": [f"UniRef90_{i * 2654435761 % (1 << 32):08X}" for i in ordinal.tolist()],
        "source": _words(np.searchsorted(edges, ordinal, side="right") - 1, names),
        "offset": ordinal * 400,
        "residues": residues,
        "unknown": (rng.random(count) < 0.001).astype(np.int64),
        "hash": pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), count, [None, pa.py_buffer(rng.bytes(16 * count))]
        ),
        "split": _words(split, SPLITS, missing=duplicate),
        "shard": _words(np.zeros(count), ("train/made-0.arrow",), missing=duplicate),
        "bucket": pa.array(np.arange(count) // 45, pa.int32(), mask=duplicate),
        "status": _words(np.where(duplicate, _DUPLICATE, _KEPT), _STATUSES),
        "duplicate_of": pa.array(duplicate_of, mask=~duplicate),
        **_headers(rng, count),
    }
    entry = _write(Path(options.out), name, columns, count)
    lengths = np.minimum(residues, options.longest_piece) + 2
    statistics = {
        split: SplitStatistics(capacity=options.capacity, longest=options.longest_span)
        for split in SPLITS
    }
    # there are no shards, but the manifest's counts must agree with records/
    for i, found in enumerate(statistics.values()):
        found.sequences = int(np.count_nonzero(split[kept] == i))
        found.tokens = int(lengths[kept][split[kept] == i].sum())
    return ReduceResult(
        packed=(
            PackedVariant(
                rest=None,
                shards=dict.fromkeys(SPLITS, ()),
                statistics=statistics,
                token_counts=(0,) * 256,
            ),
        ),
        records=entry,
        status={_STATUSES[_KEPT]: int(kept.size), _STATUSES[_DUPLICATE]: int(duplicate.sum())},
        residues_in=int(residues.sum()),
    )


def _headers(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Return made-up values of UniRef and TrEMBL headers. Most records belong to a few taxa."""
    taxon = np.minimum(rng.zipf(1.3, count), _TAXA)
    of_uniref = rng.random(count) < 0.75
    return {
        "taxid": pa.array(taxon, pa.int32()),
        "organism": _words(taxon - 1, [f"Made organism {i}" for i in range(1, _TAXA + 1)]),
        "pe": pa.array(rng.integers(1, 6, count), pa.int8(), mask=of_uniref),
        "fragment": rng.random(count) < 0.1,
        "cluster_size": pa.array(rng.geometric(0.2, count), pa.int32(), mask=~of_uniref),
        "database": _words(of_uniref, ("TrEMBL", "UniRef90")),
    }


def _words(
    index: NDArray[Any], words: Sequence[str], missing: NDArray[np.bool_] | None = None
) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32(), mask=missing), words)


def _write(out: Path, name: str, columns: Mapping[str, Any], count: int) -> RecordsEntry:
    """Write a records/ file. Columns that are not given are null."""
    schema = records_schema()
    arrays = [
        (found.cast(field.type) if isinstance(found, pa.Array) else pa.array(found, field.type))
        if (found := columns.get(field.name)) is not None
        else pa.nulls(count, field.type)
        for field in schema
    ]
    with open(out / name, "wb") as file, records_writer(file, schema) as writer:
        writer.write_table(pa.table(arrays, schema=schema))
    size, digest = hash_file(out / name)
    return RecordsEntry(name=name, bytes=size, rows=count, xxh3_128=digest)


if __name__ == "__main__":
    main()
