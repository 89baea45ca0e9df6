"""Fixtures: a dataset that tests may damage, and stores that start each test without faults."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

import pipeline.reader.cache.cache_folder
import pipeline.storage.retries
from pipeline.reader import ShardReader
from tests.helpers.stores.stores import Trouble


@pytest.fixture
def dataset(many_shards: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(many_shards, tmp_path / "dataset"))


@pytest.fixture
def truth(many_shards: Path) -> list[bytes]:
    """Return the tokens of each bucket of one and a half epochs, in order."""
    with ShardReader(many_shards, prefetch=0) as reader:
        return [bucket.input_ids.tobytes() for bucket in islice(reader, 3 * len(reader) // 2)]


@pytest.fixture(autouse=True)
def _no_trouble(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    Trouble.reset()
    monkeypatch.setattr(pipeline.storage.retries, "FIRST_PAUSE", 0.002)
    yield
    Trouble.reset()
