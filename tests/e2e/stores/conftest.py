"""Fixtures: stores, a proxy that injects faults, and corpora on a local disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import preprocess
from tests.helpers.stores.faulty_proxy import Faults, faulty_proxy
from tests.helpers.stores.object_store import ObjectStore, object_store, point_s3_at
from tests.helpers.stores.store_builds import OPTIONS, SIZES


@pytest.fixture(scope="package")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "made.fasta"
    path.write_bytes(fasta(made_records(700)))
    return path


@pytest.fixture(scope="package")
def near(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the dataset of the corpus on a local disk."""
    return preprocess(corpus, tmp_path_factory.mktemp("near") / "out", *OPTIONS, **SIZES)


@pytest.fixture
def proxied(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """Send requests to s3:// through a proxy that injects faults; the timeout is one second."""
    with faulty_proxy(store.endpoint) as (address, faults):
        point_s3_at(address, monkeypatch)
        monkeypatch.setenv(
            "FSSPEC_S3", json.dumps({"config_kwargs": {"read_timeout": 1, "connect_timeout": 1}})
        )
        yield faults


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "made.fasta"
    path.write_bytes(fasta(made_records(20)))
    return path


@pytest.fixture
def own_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """Start a server for one test, and point s3:// at it."""
    with object_store() as started:
        point_s3_at(started.endpoint, monkeypatch)
        yield started
