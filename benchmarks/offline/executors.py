"""Time a whole build: first one worker against two workers, then two workers against Ray.

    python -m benchmarks.offline.executors --fasta swissprot_x10.fasta --runs 3

The kinds of build alternate, so a slow phase of the machine affects all of them. Before each build,
the input is read into the page cache. One worker is compared with two workers before Ray is
started. For the second comparison, the benchmark starts a Ray cluster of two cores (`ray start`).
With --own-cluster, the benchmark also times a build that starts and stops Ray itself.
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
    """Input of the build."""
    runs: int = 3
    """Number of rounds. Each round times each kind of build once. The benchmark prints the
    medians."""
    folder: Path = Path(tempfile.gettempdir())
    """Folder for temporary datasets."""
    ray: bool = True
    """Also time builds on Ray."""
    own_cluster: bool = False
    """Also time a build that starts and stops Ray itself."""


def job(options: Options, *arguments: str) -> float:
    """Run a build; return the seconds from its start to its exit."""
    out = options.folder / "thdpack-benchmark"
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run(["sync"], check=True)
    subprocess.run(["cat", str(options.fasta)], stdout=subprocess.DEVNULL, check=True)
    started = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "pipeline",
        "preprocess",
        str(options.fasta),
        "--out",
        str(out),
        "--log-json",
        *arguments,
    ]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    seconds = time.perf_counter() - started
    shutil.rmtree(out)
    return seconds


def compared(options: Options, ways: dict[str, tuple[str, ...]]) -> None:
    """Time the kinds of build alternately; print the speed of each kind relative to the first."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.runs):
        for name, arguments in ways.items():
            times[name].append(job(options, *arguments))
        print(
            ", ".join(f"{name} {seconds[-1]:.2f} s" for name, seconds in times.items()), flush=True
        )
    size = options.fasta.stat().st_size
    first = next(iter(ways))
    for name, seconds in times.items():
        median = statistics.median(seconds)
        rounds = statistics.median(a / b for a, b in zip(times[first], seconds, strict=True))
        ratio = statistics.median(times[first]) / median
        speed = (
            f"{ratio:.2f} × the speed of {first} "
            f"(ratio of medians; median of the rounds' ratios: {rounds:.2f})"
        )
        print(
            f"{name}: median {median:.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
            f"{size / median / 1e6:.0f} MB/s of FASTA, {speed}",
            flush=True,
        )


def main(options: Options) -> None:
    job(options, "--workers", "2")
    compared(options, {"1 worker": ("--workers", "1"), "2 workers": ("--workers", "2")})
    if not options.ray:
        return
    ways = {
        "2 workers": ("--workers", "2"),
        "Ray, on a running cluster of 2 cores": ("--executor", "ray", "--ray-address", "auto"),
    }
    if options.own_cluster:
        ways["Ray, started by the job"] = ("--executor", "ray", "--workers", "2")
    ray = str(Path(sys.executable).with_name("ray"))
    subprocess.run(
        [
            ray,
            "start",
            "--head",
            "--num-cpus",
            "2",
            "--include-dashboard",
            "false",
            "--disable-usage-stats",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    try:
        compared(options, ways)
    finally:
        subprocess.run([ray, "stop", "--force"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(tyro.cli(Options))
