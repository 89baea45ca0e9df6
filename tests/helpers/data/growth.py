"""Inputs that share sequences, and datasets to which these inputs are appended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.helpers.data.corpus import (
    fasta,
    made_records,
    read_buckets,
    read_records,
    sequences_in,
)
from tests.helpers.processes.command_line import Run

SIZES = {"task_bytes": 40_000, "partition_bytes": 40_000}
OPTIONS = (
    *("--capacity", 512, "--max-seq-len", 128),
    *("--split", "train=0.7,valid=0.2,test=0.1", "--shard-mb", 1),
)


def write_inputs(folder: Path, count: int, *, records: int = 100) -> list[Path]:
    """Write files. Each file has new sequences, some of them twice, and some sequences of earlier
    files.

    Args:
        records: number of new sequences in each file.
    """
    made = made_records(count * records, longest=400)
    paths = []
    for number in range(count):
        own = made[number * records :][:records]
        repeated = made[: number * records : 7] + own[::9]
        lines = own + [(f"copy-{number}-{name}", residues) for name, residues in repeated]
        paths.append(folder / f"{number}.fasta")
        paths[-1].write_bytes(fasta(lines))
    return paths


def grow(run: Run, inputs: list[Path], out: Path, steps: list[int], *options: Any) -> Path:
    """Build a dataset of the first inputs, and append the others step by step.

    Args:
        steps: number of inputs that each step adds. The sum is the number of inputs.
        options: options of the first build.
    """
    left = list(inputs)
    for number, count in enumerate(steps):
        now, left = left[:count], left[count:]
        if number:
            done = run("append", out, *now, **SIZES)
        else:
            done = run("preprocess", *now, "--out", out, *options, **SIZES)
        assert done.returncode == 0, done.stderr
    assert not left
    return out


def statuses(dataset: Path) -> list[tuple[Any, ...]]:
    """Return the status, the split and the identity of each record, sorted by ordinal."""
    columns = ("ordinal", "id", "source", "offset", "hash", "status", "split", "duplicate_of")
    return sorted(tuple(row[name] for name in columns) for row in read_records(dataset))


def sequences(dataset: Path, variant: int) -> list[tuple[Any, ...]]:
    """Return each sequence in the buckets of a variant, with its split, record and start."""
    return sorted(
        (bucket["split"], *sequence)
        for bucket in read_buckets(dataset, variant)
        for sequence in sequences_in(bucket)
    )
