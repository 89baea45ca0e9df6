"""Measure how long it takes to check a checkpoint's hashes, and a shard's hash and buckets.

    python -m benchmarks.checks

All files are created in a temporary folder and read from the page cache. One rank compares a
checkpoint with its hashes, as a resumed run does. A reader computes a shard's hash each time that
it maps the shard into memory. It checks the shard's buckets only the first time in a process.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from pipeline.reader.mapped_shard import BucketShape, MappedShard, verified_mapping
from pipeline.storage.read_manifest import read_manifest
from trainer.checkpoints.file_hashes import damage, hash_file, write_hashes
from trainer.distributed.topology import Topology, process_group

LETTERS = np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", dtype=np.uint8)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure the time of integrity checks."""

    file_bytes: int = 1 << 30
    """Size of each file of a checkpoint, in bytes."""
    shard_bytes: int = 48_000_000
    """Approximate size of the shard, in bytes."""
    rounds: int = 9
    """Number of rounds. Each round times each check once. The benchmark prints the medians."""
    folder: Path = Path(tempfile.gettempdir())
    """Folder for temporary files."""


def checkpoint(folder: Path, files: int, size: int) -> Path:
    """Write a checkpoint folder: `files` files of `size` random bytes, and their hashes."""
    folder.mkdir()
    content = np.random.default_rng(0).bytes(size)
    for number in range(files):
        (folder / f"__{number}_0.distcp").write_bytes(content)
    write_hashes(folder, {path.name: hash_file(path) for path in sorted(folder.iterdir())})
    return folder


def compare(folder: Path, topology: Topology) -> None:
    """Compare a checkpoint's files with their hashes.

    Raises:
        SystemExit: a file differs from its hash.
    """
    if problem := damage(folder, topology):
        raise SystemExit(problem)


def dataset(folder: Path, size: int) -> Path:
    """Build a dataset of random sequences, whose largest shard has about `size` bytes."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(5.7, 0.7, size // 370), 30, 1022).astype(int)
    with (folder / "made.fasta").open("wb") as file:
        for number, length in enumerate(lengths):
            file.write(
                b">%d\n%s\n" % (number, LETTERS[rng.integers(0, LETTERS.size, length)].tobytes())
            )
    command = [
        sys.executable,
        "-m",
        "pipeline",
        "preprocess",
        str(folder / "made.fasta"),
        "--out",
        str(folder / "dataset"),
    ]
    subprocess.run(
        [*command, "--split", "train=1", "--log-json"], check=True, stdout=subprocess.DEVNULL
    )
    return folder / "dataset"


def measured(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Time each function once per round, after a warm-up round; return its sorted times in s."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            if number:
                times[name].append(time.perf_counter() - begun)
    return {name: sorted(seconds) for name, seconds in times.items()}


def main(options: Options) -> None:
    table = Table("check", "MB", "ms (lowest to highest)", "GB/s", title="medians")
    with (
        tempfile.TemporaryDirectory(dir=options.folder, prefix="thdpack-checks-") as made,
        process_group() as topology,
    ):
        folder = Path(made)
        one, two = (
            checkpoint(folder / f"checkpoint-{files}", files, options.file_bytes)
            for files in (1, 2)
        )
        built = dataset(folder, options.shard_bytes)
        manifest = read_manifest(str(built))
        entry = max(manifest.shards["train"], key=lambda shard: shard.bytes)
        path, shape = built / entry.name, BucketShape.of(manifest)
        sizes = (options.file_bytes, 2 * options.file_bytes, entry.bytes, entry.bytes, entry.bytes)
        ways: dict[str, Callable[[], object]] = {
            "checkpoint of one file": partial(compare, one, topology),
            "checkpoint of two files": partial(compare, two, topology),
            "hash of a shard": partial(verified_mapping, path, entry),
            "map the shard again": partial(MappedShard, path, entry, shape, check_buckets=False),
            "map the shard for the first time": partial(MappedShard, path, entry, shape),
        }
        for (name, seconds), size in zip(
            measured(ways, options.rounds).items(), sizes, strict=True
        ):
            middle = statistics.median(seconds)
            spread = f"{middle * 1e3:.1f} ({seconds[0] * 1e3:.1f} to {seconds[-1] * 1e3:.1f})"
            table.add_row(name, f"{size / 1e6:,.0f}", spread, f"{size / middle / 1e9:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main(tyro.cli(Options, prog="python -m benchmarks.checks"))
