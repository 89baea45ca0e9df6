"""Datasets for the tests of `thdpack verify --deep`. The tests damage copies of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.data.corpus import LETTERS, fasta, made_records
from tests.helpers.data.damaged_datasets import MOST, SPLIT_OPTION, OpenDataset
from tests.helpers.processes.command_line import preprocess


def corpus() -> bytes:
    """Return records. Some are equal, some have the same length, and some are long."""
    rng = np.random.default_rng(1)  # not the seed of made_records

    def residues(count: int) -> str:
        return "".join(rng.choice(list(LETTERS), count))

    begin = residues(MOST)
    return fasta(
        [
            *(("copy", begin[:30]) for _ in range(3)),
            *((f"twin{i}", begin + residues(20)) for i in range(2)),
            *made_records(60, longest=2 * MOST),
            *((f"same{i}", residues(40)) for i in range(12)),
            *((f"full{i}", residues(MOST)) for i in range(12)),
            *((f"long{i}", residues(3 * MOST + 5)) for i in range(12)),
            *((f"unknown{i}", "J" + residues(MOST + 5)) for i in range(2)),
        ]
    )


@pytest.fixture(scope="module", name="built")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that builds a dataset once for each choice of options.

    The file clusters.tsv has two clusters. One has three ids. The other has only twin0, whose first
    piece (first max_seq_len - 2 residues) equals twin1's first piece. The file test.fasta has a
    record of the corpus, and ids.txt names another record.
    """
    folder = tmp_path_factory.mktemp("deep")
    (folder / "x.fasta").write_bytes(corpus())
    rows = [("same0", "same0"), ("same0", "same1"), ("same0", "copy"), ("twin0", "twin0")]
    (folder / "clusters.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in rows))
    lines = corpus().decode().splitlines()
    (folder / "test.fasta").write_text(">entry\n" + lines[lines.index(">same3") + 1])
    (folder / "ids.txt").write_text("same4\n")
    shape = ("--capacity", "256", "--max-seq-len", str(MOST + 2))

    def build(*options: str) -> Path:
        out = folder / ("_".join(options) or "plain")
        if not out.exists():
            words = [str(folder / word) if "." in word else word for word in options]
            preprocess(folder / "x.fasta", out, *shape, "--split", SPLIT_OPTION, *words)
        return out

    return build


@pytest.fixture(name="opened")
def _opened(built: Callable[..., Path], tmp_path: Path) -> Callable[..., OpenDataset]:
    def copy(*options: str) -> OpenDataset:
        return OpenDataset(Path(shutil.copytree(built(*options), tmp_path / "out")))

    return copy
