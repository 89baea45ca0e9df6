"""Time `thdpack verify` and `thdpack verify --deep` on a dataset, start-up included.

    thdpack preprocess swissprot.fasta --out data/swissprot
    python -m benchmarks.offline.verify data/swissprot
    python -m benchmarks.offline.verify data/swissprot --before ../before

The last command also times the deep check of another checkout of this repository, whose kernels
must be compiled (see benchmarks/checkouts.py). All commands take turns. CPU time and peak memory
include all processes of a command.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.checkouts import adopt_descendants, cpu_seconds, environment
from benchmarks.offline.preprocess import PeakMemory
from schemas.manifest import Manifest

REPO = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Time `thdpack verify`."""

    dataset: Annotated[Path, tyro.conf.Positional]
    """Folder of the dataset."""
    before: Path | None = None
    """Folder of another checkout, whose deep check is also timed."""
    rounds: int = 5
    """Number of timed rounds, after one warm-up round. Each round runs each command once."""
    workers: int = 2
    """Number of worker processes."""


@dataclass(frozen=True, slots=True)
class Way:
    """A command to time: the checkout that runs it, and whether it is the deep check."""

    checkout: Path
    deep: bool

    def run(self, options: Options, *, watch: bool = False) -> tuple[float, float, int]:
        """Run the command; return seconds, CPU seconds, and peak memory in bytes.

        watch: measure peak memory, which makes the command slower. If False, the returned peak
            is 0.
        """
        words = [sys.executable, "-m", "pipeline", "verify", str(options.dataset.resolve())]
        words += ["--workers", str(options.workers), *(["--deep"] * self.deep)]
        environ = environment(self.checkout)
        used, begun = cpu_seconds(), time.perf_counter()
        process = subprocess.Popen(words, cwd=self.checkout, env=environ, stdout=subprocess.DEVNULL)
        memory = PeakMemory(process.pid) if watch else None
        code = process.wait()
        seconds = time.perf_counter() - begun
        if memory is not None:
            memory.stop()
        if code:
            raise SystemExit(f"verify failed with exit code {code}")
        return seconds, cpu_seconds() - used, memory.peak if memory is not None else 0


def main(options: Options) -> None:
    adopt_descendants()
    ways = {"verify": Way(REPO, deep=False), "verify --deep": Way(REPO, deep=True)}
    if options.before is not None:
        ways["verify --deep, before"] = Way(options.before, deep=True)
    times: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ways}
    for number in range(options.rounds + 1):
        for name, way in ways.items():
            found = way.run(options)
            if number:
                times[name].append(found)
    manifest = Manifest.from_json(
        (options.dataset / "manifest.json").read_bytes(), where=str(options.dataset)
    )
    records = sum(manifest.records_by_status.values())
    size = sum(entry.bytes for entry in manifest.files())
    title = f"{records:,} records, {size / 1e6:,.0f} MB of files; medians"
    columns = ("command", "s (lowest to highest)", "CPU s", "peak memory (PSS), MB")
    table = Table(*columns, title=title)
    for name, way in ways.items():
        wall, cpu, _ = (sorted(values) for values in zip(*times[name], strict=True))
        _, _, peak = way.run(options, watch=True)
        table.add_row(
            name,
            f"{statistics.median(wall):.2f} ({wall[0]:.2f} to {wall[-1]:.2f})",
            f"{statistics.median(cpu):.2f}",
            f"{peak / 1e6:,.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main(tyro.cli(Options, prog="python -m benchmarks.offline.verify"))
