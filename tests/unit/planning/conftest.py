"""Datasets that plans of training runs are made for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.data.corpus import read_manifest
from tests.helpers.processes.command_line import preprocess


@pytest.fixture(scope="session")
def dataset(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sample in buckets of 4096 tokens. Tests do not change it."""
    return preprocess(sample, tmp_path_factory.mktemp("plan") / "d", "--capacity", "4096")


@pytest.fixture(scope="session")
def large(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the manifest of a dataset 1,000 times as large, without its shards."""
    manifest = read_manifest(dataset)
    train = manifest.splits["train"]
    sums = ("buckets", "sequences", "tokens", "cost_sum", "cost_square_sum")
    grown = replace(train, **{name: 1_000 * getattr(train, name) for name in sums})
    folder = tmp_path_factory.mktemp("large")
    text = replace(manifest, splits={**manifest.splits, "train": grown}).to_json()
    (folder / "manifest.json").write_text(text)
    return folder
