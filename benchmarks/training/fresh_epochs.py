"""Measure the gain of variants with random windows over one variant of truncated records.

A variant is one pass over all records, shuffled, cropped and packed with its own seed. Each epoch
reads the next variant.

    python -m benchmarks.training.fresh_epochs --fasta swissprot.fasta --folder work
    python -m benchmarks.training.fresh_epochs --folder work --seeds 0 1 2   # needs a GPU

The first command writes two FASTA files to the folder. In `train.fasta.gz`, 20 % of the records are
eight sequences joined end to end, so that they are longer than a window. All records of
`held-out.fasta.gz` were joined in the same way, from other sequences. The second command cuts the
held-out records into windows of full length.

It also builds one dataset for each name in --arms (two by default: truncated and windows). These
datasets have the same records and nearly the same number of tokens in an epoch:

- truncated: one variant, --long truncate
- window: one variant, --long crop
- windows: eight variants, --long crop

It then trains a model on each of these datasets, with each seed, for the same number of tokens, and
validates the models on the held-out windows. A model that was trained earlier is not
trained again.
"""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import tyro

from pipeline.reader import ShardReader

WINDOW: Final = 1022
JOINED: Final = 8
LONG_SHARE: Final = 0.2
ARMS: Final = {
    "truncated": ("--long", "truncate"),
    "window": ("--long", "crop"),
    "windows": ("--long", "crop", "--variants", "8"),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    folder: Path
    """Folder for FASTA files, datasets and runs."""
    fasta: Path | None = None
    """FASTA file to choose sequences from. If given, only the two FASTA files are written."""
    records: int = 15_000
    """Number of records to train on."""
    held_out: int = 300
    """Number of joined records to validate on."""
    preset: str = "esm2-35m"
    """Model to train."""
    steps: int = 1_700
    """Number of steps of each run."""
    buckets: int = 4
    """Number of buckets in a step."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the runs."""
    arms: tuple[str, ...] = ("truncated", "windows")
    """Datasets to train on."""


def sequences(fasta: Path) -> list[str]:
    """Return the sequences of a FASTA file in random order, except sequences with unusual letters
    and those below 30 residues.
    """
    found = []
    for record in fasta.read_text().split(">")[1:]:
        residues = "".join(record.split("\n")[1:])
        if set(residues) <= set("ACDEFGHIKLMNPQRSTVWY") and len(residues) >= 30:
            found.append(residues)
    order = np.random.default_rng(0).permutation(len(found))
    return [found[i] for i in order.tolist()]


def make(options: Options, fasta: Path) -> None:
    """Write the FASTA files."""
    pool = iter(sequences(fasta))
    long = round(LONG_SHARE * options.records)
    train = [next(pool) for _ in range(options.records - long)]
    train += ["".join(next(pool) for _ in range(JOINED)) for _ in range(long)]
    held_out = ["".join(next(pool) for _ in range(JOINED)) for _ in range(options.held_out)]
    held_out = [residues[: len(residues) // WINDOW * WINDOW] for residues in held_out]
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, records in (("train", train), ("held-out", [one for one in held_out if one])):
        lines = (f">{name}{i}\n{residues}\n" for i, residues in enumerate(records))
        with gzip.open(options.folder / f"{name}.fasta.gz", "wt") as file:
            file.writelines(lines)
        print(f"{name}: {len(records):,} records, {sum(map(len, records)):,} residues")


def build(options: Options) -> None:
    """Build the datasets."""
    inputs = {"held-out": ("held-out", "--long", "split", "--split", "train=1")}
    inputs |= {arm: ("train", *ARMS[arm], "--split", "train=1") for arm in options.arms}
    for name, (source, *words) in inputs.items():
        command = [sys.executable, "-m", "pipeline", "preprocess"]
        command += [str(options.folder / f"{source}.fasta.gz"), *words]
        command += ["--out", str(options.folder / name), "--log-json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def train(options: Options, arm: str, seed: int) -> Path:
    """Train a model, unless its export already exists; return the export."""
    run = options.folder / "runs" / f"{arm}-{seed}"
    if not (run / "export").exists():
        command = [sys.executable, "-m", "trainer.train", options.preset]
        command += ["--data", str(options.folder / arm), "--out", str(run), "--seed", str(seed)]
        command += ["--steps", str(options.steps), "--buckets-per-step", str(options.buckets)]
        command += ["--learning-rate", str(options.learning_rate)]
        subprocess.run(command, check=True, stdout=sys.stderr)
    return run / "export"


def held_out_loss(options: Options, export: Path) -> float:
    """Return the loss of an exported model on the held-out windows, in nats per masked token."""
    # imported here, because the first command needs no torch
    from trainer.config import parse
    from trainer.distributed.topology import process_group
    from trainer.readers.open_readers import Buckets
    from trainer.run import TrainingRun
    from trainer.validate import validate

    data = str(options.folder / "held-out")
    words = [options.preset, "--data", data, "--init-from", str(export), "--steps", "10"]
    words += ["--out", str(options.folder / "validation"), "--buckets-per-step", "1"]
    with process_group(timeout_minutes=5) as topology, ExitStack() as stack:
        run = TrainingRun(parse(words), topology, stack)
        buckets = Buckets({"data": stack.enter_context(ShardReader(data, prefetch=0))})
        return validate(run.model, buckets, run.valid_masker, topology, run.autocast).loss


def main(options: Options) -> None:
    if options.fasta is not None:
        make(options, options.fasta)
        return
    build(options)
    losses: dict[str, list[float]] = {arm: [] for arm in options.arms}
    for seed in options.seeds:
        for arm in options.arms:
            losses[arm].append(held_out_loss(options, train(options, arm, seed)))
            print(f"seed {seed}, {arm}: loss {losses[arm][-1]:.4f}", flush=True)
    for arm, found in losses.items():
        mean, spread = statistics.mean(found), max(found) - min(found)
        print(f"{arm}: mean {mean:.4f}, spread over {len(found)} seeds {spread:.4f}")
    print(json.dumps(losses))


if __name__ == "__main__":
    main(tyro.cli(Options))
