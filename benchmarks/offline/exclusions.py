"""Time builds with and without --exclude, in alternation.

    python -m benchmarks.offline.exclusions swissprot_x10.fasta
    python -m benchmarks.offline.exclusions swissprot.fasta --mmseqs --rounds 1

The test set consists of evenly spaced records of the FASTA file. A third of them are unchanged, a
third lack ten residues at each end, and a third have ten more residues at each end. The benchmark
times these builds:

- without --exclude
- with --exclude, and the sequences of the test set
- with --exclude, and a list of the ids of the same records
- only with --mmseqs: with a search of the test set by MMseqs2

CPU time is the sum over all processes of a build except MMseqs2.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from Bio.SeqIO.FastaIO import SimpleFastaParser

MORE = "MKWVTFISLL"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Time builds with and without --exclude."""

    source: Annotated[Path, tyro.conf.Positional]
    """FASTA to build from."""
    entries: int = 10_000
    """Number of entries of the test set."""
    rounds: int = 3
    """Number of timed builds of each kind, after one warm-up build."""
    mmseqs: bool = False
    """Also time a build that searches the test set with MMseqs2."""


def records(path: Path, every: int) -> Iterator[tuple[str, str]]:
    """Yield (id, residues) of every `every`-th record of a FASTA file."""
    with path.open() as file:
        for number, (header, residues) in enumerate(SimpleFastaParser(file)):
            if number % every == 0:
                yield header.split(maxsplit=1)[0], residues


def write_test_set(options: Options, fasta: Path, ids: Path) -> None:
    with options.source.open("rb") as file:
        count = sum(line.startswith(b">") for line in file)
    with fasta.open("w") as entries, ids.open("w") as names:
        for i, (name, residues) in enumerate(records(options.source, count // options.entries)):
            changed = (residues, residues[10:-10], MORE + residues + MORE)[i % 3]
            entries.write(f">test{i}\n{changed or residues}\n")
            names.write(f"{name}\n")


def build(source: Path, excluded: str | None) -> tuple[float, float]:
    """Build a dataset; return the wall-clock time and the CPU time, in seconds."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/said", "w+") as said:
        out = Path(folder) / "out"
        words = [sys.executable, "-m", "pipeline", "preprocess", str(source), "--out", str(out)]
        words += ["--exclude", excluded] if excluded else []
        began, cpu = time.perf_counter(), {}
        with subprocess.Popen(words, stdout=said, start_new_session=True) as process:
            while process.poll() is None:
                cpu |= cpu_seconds(process.pid)
                time.sleep(0.05)
        seconds = time.perf_counter() - began
        assert process.returncode == 0
        shutil.rmtree(out)
        said.seek(0)
        left_out = next(line for line in said if "left out" in line).strip()
    print(f"  {excluded or 'no exclusion'}: {seconds:.1f} s, {left_out}", flush=True)
    return seconds, sum(cpu.values())


def cpu_seconds(session: int) -> dict[int, float]:
    """Return the CPU seconds that each process of a session has used so far, by process id.

    MMseqs2 has its own session, so its time is not included.
    """
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks = int(fields[11]) + int(fields[12])
                found[int(path.parent.name)] = ticks / os.sysconf("SC_CLK_TCK")
    return found


def main(options: Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fasta, ids = Path(folder) / "test.fasta", Path(folder) / "ids.txt"
        write_test_set(options, fasta, ids)
        kinds = [None, str(fasta), str(ids), *([f"mmseqs:{fasta}"] if options.mmseqs else [])]
        build(options.source, None)
        times: dict[str | None, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for _ in range(options.rounds):
            for kind, found in times.items():
                found.append(build(options.source, kind))
    for kind, found in times.items():
        wall, cpu = (statistics.median(values) for values in zip(*found, strict=True))
        speeds = [without[0] / own[0] for without, own in zip(times[None], found, strict=True)]
        costs = [own[1] / without[1] for without, own in zip(times[None], found, strict=True)]
        print(
            f"{kind or 'no exclusion'}: {wall:.1f} s, {cpu:.1f} CPU s; relative to no exclusion: "
            f"speed {statistics.median(speeds):.2f}, CPU time {statistics.median(costs):.2f}"
        )


if __name__ == "__main__":
    main(tyro.cli(Options, prog="python -m benchmarks.offline.exclusions"))
