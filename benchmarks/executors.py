"""The whole job by one worker, by two, and by Ray, in turns so that a slow minute of the machine hits all of them.

    python -m benchmarks.executors --fasta swissprot_x10.fasta --runs 3

Ray twice: with a cluster that is there (`ray start`, two cores; started here, its start not timed), and with one that the job starts and stops itself.
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

import tyro


@dataclass(frozen=True, kw_only=True)
class Options:
    fasta: Path
    """Input of the job."""
    runs: int = 3
    """Rounds; medians are printed."""
    folder: Path = Path(tempfile.gettempdir())
    """Where datasets are written and removed."""
    own_cluster: bool = False
    """Also time a job that starts Ray itself."""


def job(options: Options, *arguments: str) -> float:
    """Seconds from start to exit."""
    out = options.folder / "thdpack-benchmark"
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run(["sync"], check=True)
    started = time.perf_counter()
    command = [sys.executable, "-m", "pipeline", "preprocess", str(options.fasta), "--out", str(out), "--log-json", *arguments]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    seconds = time.perf_counter() - started
    shutil.rmtree(out)
    return seconds


def main(options: Options) -> None:
    ray = str(Path(sys.executable).with_name("ray"))
    ways = {
        "1 worker": ("--workers", "1"),
        "2 workers": ("--workers", "2"),
        "Ray, a cluster of 2 cores that is there": ("--executor", "ray", "--ray-address", "auto"),
    }
    if options.own_cluster:
        ways["Ray, started by the job"] = ("--executor", "ray", "--workers", "2")
    subprocess.run([ray, "start", "--head", "--num-cpus", "2", "--include-dashboard", "false", "--disable-usage-stats"], check=True, stdout=subprocess.DEVNULL)
    times: dict[str, list[float]] = {name: [] for name in ways}
    try:
        job(options, "--workers", "2")  # the input into the page cache
        for _ in range(options.runs):
            for name, arguments in ways.items():
                times[name].append(job(options, *arguments))
                print(f"{name}: {times[name][-1]:.1f} s", flush=True)
    finally:
        subprocess.run([ray, "stop", "--force"], check=True, stdout=subprocess.DEVNULL)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    size = options.fasta.stat().st_size
    for name, median in medians.items():
        print(f"{name}: median {median:.1f} s, {size / median / 1e6:.0f} MB/s of FASTA")
    print(f"2 workers over 1: {medians['1 worker'] / medians['2 workers']:.2f} ×")
    for name in list(ways)[2:]:
        each = statistics.median(two / other for two, other in zip(times["2 workers"], times[name], strict=True))
        print(f"{name}, speed over 2 processes: {medians['2 workers'] / medians[name]:.2f} (median of rounds {each:.2f})")


if __name__ == "__main__":
    main(tyro.cli(Options))
