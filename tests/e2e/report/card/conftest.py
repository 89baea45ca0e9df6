"""A dataset with a release, a licence, full headers, metadata columns, and odd input names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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
    """Build a dataset with metadata for some of the records. Tests modify only copies."""
    rows = range(0, 200, 2)
    table = {
        "id": [f"made{i}" for i in rows],
        "plddt": [i / 3 for i in rows],
        "odd | name/é": [f"<b>{i}</b>" for i in rows],
        "checked": [i % 3 == 0 for i in rows],
        "count": [None if i % 5 else i for i in rows],
    }
    pq.write_table(pa.table(table), inputs.parent / "table.parquet")
    words = options(inputs)
    return preprocess(inputs, inputs.parent / "out", *words, partition_bytes=20_000)


def options(inputs: Path) -> tuple[str, ...]:
    """Return the options of the dataset's build."""
    return (*SIZES, *STATED, "--keep-header", "--metadata", str(inputs.parent / "table.parquet"))


@pytest.fixture
def dataset(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "dataset"))
