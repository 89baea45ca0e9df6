"""A corpus, an empty in-memory store, and the places to which disturbed builds write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import InThisProcess, use_few_small_tasks
from tests.helpers.processes.disturbed_builds import OUT
from tests.helpers.stores.memory_store import empty_memory_store


@pytest.fixture(autouse=True)
def _store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split builds into a few small tasks, and empty the in-memory store."""
    use_few_small_tasks(monkeypatch)
    empty_memory_store(monkeypatch)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "made.fasta"
    path.write_bytes(fasta(made_records(300)))
    return path


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("pipeline.build.array_jobs.run_listed.ProcessExecutor", InThisProcess)
    return str(tmp_path / "out") if request.param == "disk" else OUT
