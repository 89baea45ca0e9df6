"""Random records with duplicates and unknown letters, and a FASTA file of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.data.corpus import fasta, made_records


@pytest.fixture(scope="module")
def records() -> list[tuple[str, str]]:
    return made_records(700)


@pytest.fixture
def corpus(tmp_path: Path, records: list[tuple[str, str]]) -> Path:
    path = tmp_path / "made.fasta"
    path.write_bytes(fasta(records))
    return path
