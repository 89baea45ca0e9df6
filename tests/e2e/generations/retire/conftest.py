"""Fixtures of the tests that retire records."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.helpers.data.retired import LIST, write_named_inputs
from tests.helpers.processes.command_line import use_few_small_tasks


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_few_small_tasks(monkeypatch)
    monkeypatch.setattr("pipeline.build.generations.read_records.TASK_ROWS", 30)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_named_inputs(tmp_path_factory.mktemp("inputs"), 3)


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    path = tmp_path / "removed.txt.gz"
    path.write_bytes(gzip.compress(LIST.encode()))
    return path
