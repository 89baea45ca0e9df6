"""Compare the speed of two checkouts of this repository by running the same build with each.

    git worktree add ../before COMMIT && (cd ../before && python setup.py build_ext --inplace)
    python -m benchmarks.checkouts ../before . --fasta swissprot.fasta --rounds 6

The same interpreter runs both checkouts. Each checkout needs its own compiled kernels. In each
round, one checkout builds after the other, so a slow phase of the machine affects both times. The
ratio of the two times of a round is therefore more reliable than the ratio of the medians. CPU time
includes all processes of a build.
"""

from __future__ import annotations

import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import tyro
from rich.console import Console
from rich.table import Table

PR_SET_CHILD_SUBREAPER: Final = 36


@dataclass(frozen=True, kw_only=True)
class Options:
    """Time the same build with two checkouts, in alternation."""

    before: Annotated[Path, tyro.conf.Positional]
    """Folder of the older checkout."""
    after: Annotated[Path, tyro.conf.Positional]
    """Folder of the newer checkout."""
    fasta: Path
    """Input of the build."""
    workers: int = 2
    """Number of worker processes."""
    rounds: int = 6
    """Number of timed builds of each checkout, after one warm-up build."""
    folder: Path = Path(tempfile.gettempdir())
    """Folder for temporary datasets."""


def environment(checkout: Path) -> dict[str, str]:
    """Return environment variables that make Python import the packages of this checkout.

    Raises:
        SystemExit: Python imports packages from elsewhere, or the kernels are not compiled.
    """
    found = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    kernels = (
        "import packers.balanced_kernel as a; import pipeline as b; "
        "print(a.__file__, b.__file__, sep='\\n')"
    )
    command = [sys.executable, "-c", kernels]
    asked = subprocess.run(
        command, cwd=checkout, env=found, capture_output=True, text=True, check=False
    )
    if asked.returncode or not all(
        Path(name).is_relative_to(checkout.resolve()) for name in asked.stdout.splitlines()
    ):
        raise SystemExit(
            f"{checkout} has no compiled kernels: run `python setup.py build_ext --inplace` there"
        )
    return found


def build(checkout: Path, options: Options) -> tuple[float, float]:
    """Run a build; return its wall-clock time and its CPU time, in seconds."""
    subprocess.run(
        ["cat", str(options.fasta)], stdout=subprocess.DEVNULL, check=True
    )  # reads the input into the page cache
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="thdpack-checkouts-") as out:
        command = [
            sys.executable,
            "-m",
            "pipeline",
            "preprocess",
            str(options.fasta.resolve()),
            "--out",
            f"{out}/dataset",
            "--log-json",
        ]
        environ = environment(checkout)
        subprocess.run(["sync"], check=True)
        used, begun = cpu_seconds(), time.perf_counter()
        subprocess.run(
            [*command, "--workers", str(options.workers)],
            cwd=checkout,
            env=environ,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return time.perf_counter() - begun, cpu_seconds() - used


def cpu_seconds() -> float:
    """Wait for all descendants of this process to end; return their total CPU time in seconds."""
    with suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def adopt_descendants() -> None:
    """Adopt processes whose parent has ended, so that `cpu_seconds` counts their CPU time."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1):
        raise SystemExit("this benchmark needs Linux")


def main(options: Options) -> None:
    adopt_descendants()
    console, table = (
        Console(),
        Table("checkout", "s (lowest to highest)", "CPU s", "MB/s of FASTA", title="medians"),
    )
    found: dict[Path, list[tuple[float, float]]] = {options.before: [], options.after: []}
    for number in range(options.rounds + 1):
        for checkout, times in found.items():
            result = build(checkout, options)
            if number:
                times.append(result)
        if number:
            console.print(
                "  ".join(
                    f"{checkout}: {times[-1][0]:.2f} s, CPU {times[-1][1]:.2f} s"
                    for checkout, times in found.items()
                ),
                highlight=False,
            )
    size = options.fasta.stat().st_size
    for checkout, times in found.items():
        seconds = sorted(wall for wall, _ in times)
        middle = statistics.median(seconds)
        cpu = statistics.median(cpu for _, cpu in times)
        table.add_row(
            str(checkout),
            f"{middle:.2f} ({seconds[0]:.2f} to {seconds[-1]:.2f})",
            f"{cpu:.2f}",
            f"{size / middle / 1e6:.0f}",
        )
    console.print(table)
    rounds = list(zip(found[options.before], found[options.after], strict=True))
    wall, cpu = (
        statistics.median(after[kind] / before[kind] for before, after in rounds) for kind in (0, 1)
    )
    said = f"time {wall - 1:+.1%}, CPU time {cpu - 1:+.1%} (medians of the ratios within a round)"
    console.print(f"{options.after} relative to {options.before}: {said}", highlight=False)


if __name__ == "__main__":
    main(tyro.cli(Options, prog="python -m benchmarks.checkouts"))
