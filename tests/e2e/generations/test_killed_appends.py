"""Killed and resumed appends give the dataset of an append without interruption. Until the commit,
the earlier generation (the dataset before the append) stays valid."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers.data.corpus import read_records
from tests.helpers.data.growth import OPTIONS, grow, write_inputs
from tests.helpers.data.retired import read_retired, write_named_inputs
from tests.helpers.processes.command_line import Run, use_few_small_tasks
from tests.helpers.processes.killed import kill_builds

LONG = "THDPACK_LONG" in os.environ


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_few_small_tasks(monkeypatch)


def test_killed_appends_resume_to_the_same_bytes(run: Run, tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path, 3)
    dataset = grow(run, inputs[:2], tmp_path / "dataset", [1, 1], *OPTIONS, "--variants", 2)
    finished = kill_builds(inputs[2], tmp_path, 200 if LONG else 20, dataset, "append")
    assert len(set(finished)) >= 3  # kills at different stages


@pytest.mark.parametrize("option", ["retire", "retire_only"])
def test_killed_appends_that_retire_records_resume_to_the_same_bytes(
    run: Run, tmp_path: Path, option: str
) -> None:
    """The new input, too, has records with the ids in the list. These records must not be retired,
    even if the command was killed after its commit and is repeated."""
    inputs = write_named_inputs(tmp_path, 2)
    dataset = grow(run, inputs[:1], tmp_path / "dataset", [1], *OPTIONS)
    ids = [row["id"] for row in read_records(dataset)][::3]
    Path(f"{inputs[1]}.ids").write_text("\n".join(ids) + "\n")
    kill_builds(inputs[1], tmp_path, 100 if LONG else 12, dataset, option)
    retired = read_retired(tmp_path / "whole")
    assert [row["ordinal"] for row in retired[2]] == list(range(0, 3 * len(ids), 3))


def test_killed_compactions_resume_to_the_same_bytes(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "inputs"
    folder.mkdir()
    inputs = write_inputs(folder, 3)
    dataset = grow(run, inputs, tmp_path / "dataset", [1, 2], *OPTIONS)
    finished = kill_builds(folder, tmp_path, 200 if LONG else 10, dataset, "compact")
    assert len(set(finished)) >= 3
