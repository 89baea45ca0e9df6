"""A small dataset for the tests of `thdpack stats`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.data.corpus import fasta, made_records, with_headers
from tests.helpers.processes.command_line import preprocess

SIZES = ("--capacity", "512", "--max-seq-len", "256", "--split", "valid=0.1,test=0.05")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset of two inputs, with several partitions and duplicates.

    Tests modify only copies.
    """
    folder = tmp_path_factory.mktemp("stats")
    (folder / "in").mkdir()
    (folder / "in" / "first.fasta").write_bytes(fasta(with_headers(made_records(300, longest=300))))
    (folder / "in" / "second.fasta").write_bytes(fasta(made_records(200, longest=300)))
    return preprocess(folder / "in", folder / "dataset", *SIZES, partition_bytes=20_000)


@pytest.fixture
def dataset(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "dataset"))
