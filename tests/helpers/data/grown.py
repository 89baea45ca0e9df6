"""A dataset of several generations, with a copy of the dataset at each generation.

Each build or append leaves a new state of the dataset, called a generation.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.data.many_shards import LONGEST, OPTIONS
from tests.helpers.processes.command_line import preprocess, run_here

GENERATIONS: Final = 3
RECORDS: Final = 500
"""Number of records that each generation adds."""
SIZES: Final = {"partition_bytes": 2_000}
"""A partition so small that each generation adds several shards. The order of the first buckets
then differs between generations."""


@dataclass(frozen=True)
class Grown:
    """A dataset of three generations.

    copies: the dataset before each append, and after the last.
    """

    dataset: Path
    copies: tuple[Path, ...]


def grown(folder: Path) -> Grown:
    """Build a dataset in a folder, and append to it twice."""
    dataset, copies = folder / "dataset", []
    for generation in range(GENERATIONS):
        append(dataset, seed=generation) if generation else _first(dataset)
        copies.append(shutil.copytree(dataset, folder / f"copy-{generation + 1}"))
    return Grown(dataset, tuple(copies))


def append(dataset: Path | str, *, seed: int, inputs: Path | None = None) -> None:
    """Append made records to a dataset.

    Args:
        seed: seed of the records.
        inputs: folder for the input; None for the folder of the dataset.
    """
    path = (inputs or Path(dataset).parent) / f"new-{seed}.fasta"
    path.write_bytes(fasta(made_records(RECORDS, longest=LONGEST, seed=seed)))
    done = run_here("append", dataset, path, **SIZES)
    assert done.returncode == 0, done.stderr


def _first(dataset: Path) -> None:
    path = dataset.parent / "first.fasta"
    path.write_bytes(fasta(made_records(RECORDS, longest=LONGEST)))
    preprocess(path, dataset, *OPTIONS, **SIZES)
