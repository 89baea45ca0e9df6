"""Time builds of the same records with different numbers of workers, start-up included.

    python -m benchmarks.scaling --inputs big.fasta --workers 1 2 4 8 16
    python -m benchmarks.scaling --inputs big.fasta big.fasta.gz --workers 16

Each round builds every combination of input and number of workers once. The table has medians over
the rounds: time, speed, speed relative to the first row, and the time of each phase. All speeds are
in MB/s of plain FASTA, so that archives can be compared with plain files. The inputs are in the
page cache. Disk writes of one build are synced before the next build begins.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Options:
    """Compare numbers of workers."""

    inputs: tuple[Path, ...]
    """Inputs with the same records. The first one is plain FASTA: its size is the number of bytes
    from which all speeds are computed."""
    workers: tuple[int, ...] = (1, 2)
    """Numbers of worker processes."""
    runs: int = 3
    """Number of rounds."""
    folder: Path = Path(tempfile.gettempdir())
    """Folder for temporary datasets."""


@dataclass(slots=True)
class Timing:
    """Seconds of each build: in all, and in each phase."""

    total: list[float] = field(default_factory=list)
    phases: dict[str, list[float]] = field(default_factory=dict)

    def add(self, seconds: float, phases: dict[str, float]) -> None:
        self.total.append(seconds)
        for name, spent in phases.items():
            self.phases.setdefault(name, []).append(spent)


def timed_build(options: Options, source: Path, workers: int) -> tuple[float, dict[str, float]]:
    """Run a build; return its seconds from start to exit, and the seconds of each phase.

    Phase "start" ends when the first phase begins. The last phase lasts until the command exits.
    """
    out = options.folder / "thdpack-benchmark"
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run(["sync"], check=True)
    command = [sys.executable, "-m", "pipeline", "preprocess", str(source), "--out", str(out)]
    command += ["--workers", str(workers), "--log-json"]
    names, times = ["start"], [time.perf_counter()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event.get("event") == "phase":
                names.append(event["name"])
                times.append(time.perf_counter())
    times.append(time.perf_counter())
    if process.returncode:
        raise SystemExit(f"the build failed with exit code {process.returncode}")
    spent = [end - begin for begin, end in zip(times[:-1], times[1:], strict=True)]
    return times[-1] - times[0], dict(zip(names, spent, strict=True))


def main(options: Options) -> None:
    size = options.inputs[0].stat().st_size
    rows = [(source, workers) for workers in options.workers for source in options.inputs]
    timings = {row: Timing() for row in rows}
    for source in options.inputs:
        subprocess.run(["cat", str(source)], stdout=subprocess.DEVNULL, check=True)
    for number in range(options.runs):
        for source, workers in rows:
            seconds, phases = timed_build(options, source, workers)
            timings[source, workers].add(seconds, phases)
            print(f"round {number + 1}: {source.name}, {workers} workers: {seconds:.2f} s")
    shutil.rmtree(options.folder / "thdpack-benchmark")
    table = Table("input", "workers", "s", "MB/s", "relative", "seconds of each phase")
    first = statistics.median(timings[rows[0]].total)
    for (source, workers), timing in timings.items():
        seconds = statistics.median(timing.total)
        phases = "; ".join(
            f"{name} {statistics.median(spent):.2f}" for name, spent in timing.phases.items()
        )
        span = f"{seconds:.2f} ({min(timing.total):.2f} to {max(timing.total):.2f})"
        speed = f"{size / seconds / 1e6:.0f}"
        table.add_row(source.name, str(workers), span, speed, f"{first / seconds:.2f}", phases)
    Console(width=200).print(table)


if __name__ == "__main__":
    main(tyro.cli(Options))
