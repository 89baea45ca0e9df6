"""Measure the cost of a table of `--metadata`: time and memory to sort it, and time of a build.

    python -m benchmarks.offline.metadata                     # table of 3 M rows, 0.5 M records
    python -m benchmarks.offline.metadata --rows 15000000 --records 0

The table is a TSV file in random order, with about 70 bytes in each row and a row for each record.
Three kinds of builds alternate: without the table, with `--metadata`, and with `--metadata` and
`--where`. Memory is the private memory of the process that sorts the table. Pages of mapped files
are not counted, because the system can take them back.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from pipeline.build.named_files.metadata.prepare_table import prepare_metadata
from pipeline.build.named_files.named_file import named_files
from pipeline.build.options import PreprocessOptions
from pipeline.storage.local_folder import LocalFolder

LETTERS = "LAGVSERTIDPKQNFYMHWC"
RESIDUES = 350


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure a build with a table of --metadata."""

    rows: int = 3_000_000
    """Number of rows of the table."""
    records: int = 500_000
    """Number of records of the build; 0 for no build."""
    rounds: int = 3
    """Number of timed builds of each kind. One untimed build of each kind comes first."""


def write_table(path: Path, rows: int) -> None:
    """Write a table in random order."""
    order = list(range(rows))
    random.Random(0).shuffle(order)
    with path.open("w") as file:
        file.write("Entry\tReviewed\tLength\tscore\tProtein names\n")
        for i in order:
            status = "reviewed" if i % 9 == 0 else "unreviewed"
            name = f'Glycosyltransferase "family" {i % 97}'
            file.write(f"A{i:09d}\t{status}\t{i % 3000}\t{i / 7:.4f}\t{name}\n")


def write_fasta(path: Path, records: int) -> None:
    """Write random proteins whose accessions are in the table."""
    draw = random.Random(0)
    pool = "".join(draw.choices(LETTERS, k=1 << 20))
    with path.open("w") as file:
        for i in range(records):
            at = draw.randrange(len(pool) - RESIDUES)
            header = f"UniRef50_A{i:09d} Protein n=1 Tax=Homo sapiens TaxID=9606 RepID=A{i}_HUMAN"
            file.write(f">{header}\n{pool[at : at + RESIDUES]}\n")


def sort_table(path: Path) -> None:
    """Sort a table as a build does; print time and memory."""
    peak = 0

    def watch() -> None:
        nonlocal peak
        while True:
            lines = Path("/proc/self/status").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in lines)
            peak = max(peak, int(fields["RssAnon"].split()[0]) << 10)
            time.sleep(0.05)

    threading.Thread(target=watch, daemon=True).start()
    (file,) = named_files(PreprocessOptions(inputs=(), out="", metadata=str(path)))
    started = time.perf_counter()
    prepare_metadata(file, "prepared-000000.arrow", LocalFolder(path.parent, path.parent))
    seconds, used = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime
    print(
        f"sort {file.bytes / 1e6:,.0f} MB: {seconds:.1f} s, {cpu:.1f} CPU s, {peak / 1e6:,.0f} MB"
    )


def timed_build(fasta: Path, out: Path, *more: str) -> float:
    """Build a dataset; return the time in seconds."""
    shutil.rmtree(out, ignore_errors=True)
    started = time.perf_counter()
    words = [sys.executable, "-m", "pipeline", "preprocess", str(fasta), "--out", str(out), *more]
    subprocess.run(words, check=True, capture_output=True)
    return time.perf_counter() - started


def main(options: Options) -> None:
    """Print all measurements."""
    with tempfile.TemporaryDirectory(prefix="thdpack-metadata-") as folder:
        table, fasta, out = (Path(folder) / name for name in ("table.tsv", "made.fasta", "out"))
        write_table(table, options.rows)
        process = multiprocessing.get_context("spawn").Process(target=sort_table, args=(table,))
        process.start()
        process.join()
        if not options.records:
            return
        write_fasta(fasta, options.records)
        where = "\"Protein names\" like '%7' or score > 10"
        kinds = {
            "without": (),
            "--metadata": ("--metadata", str(table)),
            "--metadata and --where": ("--metadata", str(table), "--where", where),
        }
        found: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(options.rounds + 1):
            for name, words in kinds.items():
                found[name].append(timed_build(fasta, out, *words))
        for name, times in found.items():
            print(f"build {name}: {statistics.median(times[1:]):.1f} s")


if __name__ == "__main__":
    main(tyro.cli(Options, prog="python -m benchmarks.offline.metadata"))
