"""A dataset with a release and a licence, whose inputs have odd names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import preprocess

SIZES = ("--capacity", "1024", "--max-seq-len", "256", "--split", "valid=0.2,test=0.1")
STATED = ("--source-release", "UniRef50/2026_04", "--license", "CC-BY-4.0")
FILES = ("croissant.json", "README.md")


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("card") / "in"
    folder.mkdir()
    (folder / "plain.fasta").write_bytes(fasta(made_records(200, longest=300)))
    (folder / "a|b `c` <i>_d_.fasta").write_bytes(fasta(made_records(100, seed=1, longest=300)))
    return folder


@pytest.fixture(scope="session")
def built(inputs: Path) -> Path:
    return preprocess(inputs, inputs.parent / "out", *SIZES, *STATED, partition_bytes=20_000)


@pytest.fixture
def dataset(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "dataset"))
