"""A build that cannot fit on the disk ends before it writes anything."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.processes.command_line import Run

OPTIONS = ("--capacity", "2048", "--max-seq-len", "512")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "x.fasta"
    path.write_bytes(fasta(made_records(600)))
    return path


def leave(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Make every disk look as if it had `free` bytes of free space."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))


def test_too_little_space_is_an_error_before_any_work(
    run: Run, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(monkeypatch, free=corpus.stat().st_size // 2)
    done = run("preprocess", corpus, "--out", tmp_path / "out", *OPTIONS)
    assert done.returncode == 1
    assert "MB of free space, but this build needs at least" in done.stderr
    assert "choose another --out" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_build_that_fits_is_not_refused_and_neither_is_one_that_selects_records(
    run: Run, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --where, nobody knows the size of the dataset, so less space is asked for."""
    size = corpus.stat().st_size
    leave(monkeypatch, free=size)
    assert run("preprocess", corpus, "--out", tmp_path / "fits", *OPTIONS).returncode == 0
    leave(monkeypatch, free=size // 2)
    where = ("--where", "length > 600")
    done = run("preprocess", corpus, "--out", tmp_path / "few", *OPTIONS, *where)
    assert done.returncode == 0, done.stderr


def test_files_of_an_interrupted_build_count_as_space_that_is_not_needed(
    run: Run, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: _full())
        assert run("preprocess", corpus, "--out", out, *OPTIONS).returncode == 1
    left = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    needed = int(0.6 * 1.55 * corpus.stat().st_size)
    assert left > needed // 4
    leave(monkeypatch, free=needed - left // 2)
    assert run("preprocess", corpus, "--out", out, *OPTIONS).returncode == 0
    assert run("preprocess", corpus, "--out", tmp_path / "new", *OPTIONS).returncode == 1
    monkeypatch.undo()
    assert run("preprocess", corpus, "--out", tmp_path / "new", *OPTIONS).returncode == 0
    assert digest(out) == digest(tmp_path / "new")


def _full() -> None:
    raise OSError(28, os.strerror(28))
