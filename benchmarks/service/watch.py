"""Measure `thdpack watch`: files per second of many small files, and the cost of an idle service.

    python -m benchmarks.service.watch --files 10000
    python -m benchmarks.service.watch --files 0 --idle 60

- With files: start a service that appends all files and then ends (--once). Measure the time from
  its start to its end, which includes the reports, and its peak memory: the proportional set size
  (PSS) of the service and all its children.
- Idle: start a service whose inbox has no new files. Measure the CPU time and the resident set size
  (RSS) of the service, without its children.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.offline.preprocess import PeakMemory

_LETTERS = "ACDEFGHIKLMNPQRSTVWY"


@dataclass(frozen=True, kw_only=True)
class Options:
    files: int = 10_000
    """Number of files, each with three records. 0 measures no files."""
    idle: float = 30.0
    """Time in seconds for which an idle service is measured."""
    folder: Path = Path(tempfile.gettempdir())
    """Folder for the temporary inbox and dataset."""


def main(options: Options) -> None:
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        inbox = folder / "inbox"
        inbox.mkdir()
        rng = random.Random(1)
        _write(folder / "first.fasta", rng, "first")
        subprocess.run(
            [*_thdpack("preprocess"), folder / "first.fasta", "--out", folder / "dataset"],
            check=True,
            capture_output=True,
        )
        watch = [*_thdpack("watch"), str(inbox), "--dataset", str(folder / "dataset")]
        watch += ["--port", "0", "--settle", "0"]
        if options.files:
            _small_files(watch, inbox, options.files, rng)
        _idle(watch, options.idle)


def _thdpack(command: str) -> list[str]:
    return [sys.executable, "-m", "pipeline", command]


def _write(path: Path, rng: random.Random, name: str) -> None:
    records = (
        f">{name}_{number}\n{''.join(rng.choices(_LETTERS, k=rng.randint(60, 400)))}\n"
        for number in range(3)
    )
    path.write_text("".join(records))


def _small_files(watch: list[str], inbox: Path, files: int, rng: random.Random) -> None:
    for number in range(files):
        _write(inbox / f"{number:06}.fasta", rng, f"f{number}")
    started = time.perf_counter()
    with subprocess.Popen([*watch, "--once"], stdout=subprocess.DEVNULL) as service:
        memory = PeakMemory(service.pid)
        code = service.wait()
        memory.stop()
    seconds = time.perf_counter() - started
    taken = sum(len(names) for _, _, names in os.walk(inbox / "taken"))
    assert (code, taken) == (0, files)
    print(f"{files:,} files in {seconds:.1f} s: {files / seconds:.0f} files/s")
    print(f"peak memory {memory.peak / 1e6:.0f} MB")


def _idle(watch: list[str], seconds: float) -> None:
    with subprocess.Popen(watch, stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        while b'"started"' not in service.stdout.readline():
            pass
        time.sleep(5)  # do not measure the start-up
        before = _cpu_seconds(service.pid)
        time.sleep(seconds)
        share = (_cpu_seconds(service.pid) - before) / seconds
        text = Path(f"/proc/{service.pid}/status").read_text()
        [memory] = [int(line.split()[1]) for line in text.splitlines() if "VmRSS" in line]
        children = Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split()
        service.terminate()
    print(f"idle: {100 * share:.2f} % of a core, {memory / 1000:.0f} MB, {len(children)} children")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(tyro.cli(Options))
