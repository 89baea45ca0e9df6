"""The file in which a build writes how far it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pipeline.build.progress.progress_file as progress_file
from pipeline.build.progress.progress_file import PROGRESS_NAME, ProgressFile, read_progress
from schemas.manifest import WORK


def test_the_file_is_written_at_each_phase_and_then_at_most_once_a_second(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = iter([10.0, 10.5, 11.5, 11.5, 12.0])
    monkeypatch.setattr(progress_file.time, "monotonic", lambda: next(clock))
    (tmp_path / WORK).mkdir()
    file = ProgressFile(tmp_path / WORK)
    file.phase("read", 100)
    file.records = 7
    said = []
    for _ in range(2):  # half a second after the last write, and then one and a half
        file.advance(30)
        found = read_progress(tmp_path)
        assert found is not None
        said.append((found.pid, found.phase, found.done_bytes, found.total_bytes, found.records))
    assert said == [(os.getpid(), "read", 0, 100, 0), (os.getpid(), "read", 60, 100, 7)]
    assert [path.name for path in (tmp_path / WORK).iterdir()] == [PROGRESS_NAME]


def test_no_work_folder_is_created_for_the_file(tmp_path: Path) -> None:
    ProgressFile(tmp_path / WORK).phase("verify", 0)
    assert list(tmp_path.iterdir()) == []
    assert read_progress(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"pid": -1}', b"\xff", b'{"pid": 1, "x": 2}'])
def test_a_damaged_file_is_no_progress(tmp_path: Path, content: bytes) -> None:
    (tmp_path / WORK).mkdir()
    (tmp_path / WORK / PROGRESS_NAME).write_bytes(content)
    assert read_progress(tmp_path) is None
