"""Fixtures: a dataset and an empty inbox."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.data.inboxes import first_dataset


@pytest.fixture(scope="package")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a small dataset. Tests must not modify it."""
    return first_dataset(tmp_path_factory.mktemp("built"))


@pytest.fixture
def dataset(built: Path, tmp_path: Path) -> Path:
    """Return a copy of the small dataset."""
    return Path(shutil.copytree(built, tmp_path / "dataset"))


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    path = tmp_path / "inbox"
    path.mkdir()
    return path
