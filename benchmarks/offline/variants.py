"""Measure how long a build with several variants takes, compared with a build of one variant.

    python -m benchmarks.offline.variants --fasta swissprot_x10.fasta --variants 8 --runs 3

The two builds alternate, and the benchmark prints the median ratio of their times. Before the
builds, the input is read into the page cache. Each dataset is removed after its build.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True, kw_only=True)
class Options:
    fasta: Path
    """Input of the builds."""
    variants: int = 8
    """Number of variants of the larger dataset."""
    long: Literal["truncate", "crop", "split"] = "crop"
    """Treatment of long records, for both datasets."""
    workers: int = 2
    """Number of worker processes."""
    runs: int = 3
    """Number of pairs of builds."""
    folder: Path = Path(tempfile.gettempdir())
    """Folder for temporary datasets."""


def build(options: Options, variants: int) -> float:
    """Return the seconds of a build, from its start to its exit."""
    out = options.folder / f"thdpack-variants-{variants}"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "pipeline", "preprocess", str(options.fasta)]
    command += ["--out", str(out), "--variants", str(variants), "--long", options.long]
    command += ["--workers", str(options.workers), "--log-json"]
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    seconds = time.perf_counter() - started
    shutil.rmtree(out)
    return seconds


def main(options: Options) -> None:
    size = options.fasta.stat().st_size
    with options.fasta.open("rb") as file:
        while file.read(1 << 24):
            pass
    ratios = []
    for run in range(options.runs):
        one, several = build(options, 1), build(options, options.variants)
        ratios.append(several / one)
        rates = f"{size / one / 1e6:,.0f} MB/s and {size / several / 1e6:,.0f} MB/s of FASTA"
        print(f"run {run}: {one:.1f} s and {several:.1f} s, {rates}, ratio {ratios[-1]:.2f}")
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(
        f"{options.variants} variants take {statistics.median(ratios):.2f} times as long as one "
        f"(median of {options.runs}; {spread})"
    )


if __name__ == "__main__":
    main(tyro.cli(Options))
