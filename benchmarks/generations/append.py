"""Measure how long it takes to append one per cent of a corpus, compared with building all of it.

    python -m benchmarks.generations.append --fasta swissprot_x10.fasta --runs 3

The last records of the corpus are cut into two files of the same size. In each run, the benchmark
builds a dataset of all other records, appends the first file, and then the second file. The first
append also writes the hash index of the whole dataset: the hashes of all kept sequences, in which
an append finds duplicates. Then the benchmark builds a dataset of the whole corpus. It prints the
time of each step, and the median ratios. Before the runs, the input is read into the page cache.
Each dataset is removed after its run.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

_BLOCK = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Options:
    fasta: Path
    """Corpus."""
    share: float = 0.01
    """Size of each appended file, as a share of the corpus."""
    workers: int = 2
    """Number of worker processes."""
    runs: int = 3
    """Number of runs."""
    folder: Path = Path(tempfile.gettempdir())
    """Folder for temporary files and datasets."""


def cut(fasta: Path, share: float, folder: Path) -> list[Path]:
    """Cut a FASTA file at records into three files: the last two have about `share` of it each."""
    size = fasta.stat().st_size
    edges = [0]
    with fasta.open("rb") as file:
        for place in (1 - 2 * share, 1 - share):
            file.seek(int(size * place))
            found = file.read(_BLOCK).find(b"\n>")
            assert found >= 0, "a record is longer than 16 MiB"
            edges.append(int(size * place) + found + 1)
        paths = []
        for number, (begin, end) in enumerate(zip(edges, [*edges[1:], size], strict=True)):
            paths.append(folder / f"part-{number}.fasta")
            file.seek(begin)
            with paths[-1].open("wb") as part:
                while left := end - file.tell():
                    part.write(file.read(min(left, _BLOCK)))
    return paths


def timed(*words: object) -> float:
    """Run a thdpack command; return its duration in seconds, from its start to its exit."""
    command = [sys.executable, "-m", "pipeline", *map(str, words)]
    # as for most users, Python saves compiled modules; otherwise each start might compile some
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    quiet = subprocess.DEVNULL
    started = time.perf_counter()
    subprocess.run(command, stdout=quiet, stderr=quiet, check=True, env=environment)
    return time.perf_counter() - started


def main(options: Options) -> None:
    folder = options.folder / "thdpack-append"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    most, first, second = cut(options.fasta, options.share, folder)
    steps: list[tuple[float, ...]] = []
    for run in range(options.runs):
        out, workers = folder / "out", ("--workers", options.workers)
        timed("preprocess", most, "--out", out, *workers)
        appends = [timed("append", out, path, *workers) for path in (first, second)]
        shutil.rmtree(out)
        whole = timed("preprocess", options.fasta, "--out", out, *workers)
        shutil.rmtree(out)
        steps.append((whole, *appends))
        print(
            f"run {run}: build {whole:.2f} s, first append {appends[0]:.2f} s, "
            f"second append {appends[1]:.2f} s",
            flush=True,
        )
    size = first.stat().st_size / 1e6
    for name, column in (("first", 1), ("second", 2)):
        ratios = [step[0] / step[column] for step in steps]
        print(
            f"{name} append of {size:.1f} MB: {statistics.median(ratios):.1f} times as fast as the "
            f"build (median of {options.runs}; {min(ratios):.1f} to {max(ratios):.1f})"
        )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(tyro.cli(Options))
