"""Measure speed and peak memory of a whole build, start-up included, and the speed of parsing.

    python -m benchmarks.offline.preprocess --fasta swissprot.fasta --workers 2 --runs 5
    python -m benchmarks.offline.preprocess --fasta swissprot.fasta.gz --fasta-bytes 222498452
    python -m benchmarks.offline.preprocess --fasta swissprot.fasta --tokenizer tokenizer.json

The last command also times the Hugging Face tokenizer. Before the builds, the input is read into
the page cache.
"""

from __future__ import annotations

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

from pipeline.inputs.fasta import FastaParser
from schemas.vocabulary import ESM2


@dataclass(frozen=True, kw_only=True)
class Options:
    fasta: Path
    """Input of the build."""
    fasta_bytes: int | None = None
    """Decompressed size of the input in bytes. Default: the size of the file."""
    workers: int = 2
    """Number of worker processes."""
    runs: int = 5
    """Number of timed builds. The benchmark prints the median."""
    folder: Path = Path(tempfile.gettempdir())
    """Folder for temporary datasets."""
    tokenizer: Path | None = None
    """tokenizer.json of ESM-2. If given, Hugging Face's fast tokenizer is timed on 20,000 records.
    """


class PeakMemory:
    """Peak of the proportional set size (PSS) of a process and all its descendants, in bytes.

    A thread samples the sizes every 50 ms.
    """

    def __init__(self, root: int) -> None:
        self.peak = 0
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.peak = max(self.peak, sum(pss(process) for process in family(self._root)))


def family(root: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    found = [root]
    for process in found:
        try:
            for task in Path(f"/proc/{process}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def pss(process: int) -> int:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next(
        (int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0
    )


def run_job(options: Options, out: Path, *, watch: bool) -> tuple[float, int]:
    """Run a build; return the seconds from its start to its exit, and its peak memory in bytes.

    watch: measure peak memory, which makes the build slower. If False, the returned peak is 0.
    """
    command = [
        sys.executable,
        "-m",
        "pipeline",
        "preprocess",
        str(options.fasta),
        "--out",
        str(out),
        "--workers",
        str(options.workers),
        "--log-json",
    ]
    shutil.rmtree(out, ignore_errors=True)
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    memory = PeakMemory(process.pid) if watch else None
    code = process.wait()
    seconds = time.perf_counter() - started
    if memory is not None:
        memory.stop()
    if code:
        raise SystemExit(f"the job failed with exit code {code}")
    return seconds, memory.peak if memory is not None else 0


def parse_speed(fasta: Path) -> tuple[float, float]:
    """Parse and tokenize a file on one core; return MB/s and residues/s."""
    parser = FastaParser(ESM2)
    residues = 0
    started = time.perf_counter()
    with fasta.open("rb", buffering=0) as file:
        for block in parser.read(file):
            residues += int(block.ends[-1])
    seconds = time.perf_counter() - started
    return fasta.stat().st_size / seconds / 1e6, residues / seconds


def tokenizer_speed(path: Path, fasta: Path) -> float:
    """Return residues/s of the Hugging Face fast tokenizer on one core, in batches of 1,000."""
    import os

    from Bio.SeqIO.FastaIO import SimpleFastaParser

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    with fasta.open() as file:
        texts = [
            residues
            for _, (_, residues) in zip(range(20_000), SimpleFastaParser(file), strict=False)
        ]
    started = time.perf_counter()
    for i in range(0, len(texts), 1000):
        tokenizer.encode_batch(texts[i : i + 1000])
    return sum(map(len, texts)) / (time.perf_counter() - started)


def main(options: Options) -> None:
    size = options.fasta_bytes or options.fasta.stat().st_size
    while_reading = options.fasta.read_bytes()
    del while_reading
    out = options.folder / "thdpack-benchmark"
    run_job(options, out, watch=False)
    seconds = sorted(run_job(options, out, watch=False)[0] for _ in range(options.runs))
    _, peak = run_job(options, out, watch=True)
    shutil.rmtree(out)
    median = statistics.median(seconds)
    print(
        f"whole job, {options.workers} workers: median {size / median / 1e6:.0f} MB/s of FASTA "
        f"({median:.2f} s; {seconds[0]:.2f} to {seconds[-1]:.2f})"
    )
    print(f"peak memory of all processes (PSS): {peak / 1e6:.0f} MB")
    if options.fasta.suffix in (".fasta", ".fa", ".faa"):
        speeds = [parse_speed(options.fasta) for _ in range(options.runs)]
        parse_mb, parse_residues = (
            statistics.median(values) for values in zip(*speeds, strict=True)
        )
        print(
            f"parse + tokenize, one core: median {parse_mb:.0f} MB/s, "
            f"{parse_residues / 1e6:.0f} M residues/s"
        )
        if options.tokenizer is not None:
            other = tokenizer_speed(options.tokenizer, options.fasta)
            job_residues = parse_residues / parse_mb * size / median / 1e6
            print(f"Hugging Face fast tokenizer: {other / 1e6:.2f} M residues/s")
            print(
                f"residues/s relative to that tokenizer: whole job {job_residues / other:.0f} ×, "
                f"parse + tokenize {parse_residues / other:.0f} ×"
            )


if __name__ == "__main__":
    main(tyro.cli(Options))
