"""Datasets on an object store: built there, from inputs there, read from there, and the same bytes as on a local disk."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from pipeline.reader import ShardReader
from tests.conftest import Run
from tests.corpus import digest, fasta, made_records
from tests.object_store import ObjectStore, digests, object_store, objects, put, s3_environment

SIZES = {"task_bytes": 250_000, "partition_bytes": 200_000}
OPTIONS = ("--capacity", "2048", "--max-seq-len", "512", "--workers", "2")
OUT = "s3://bucket/sets/made"


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """The server, empty, and this process's environment such that s3:// means it."""
    server.reset()
    for name, value in s3_environment(server.endpoint).items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "made.fasta"
    path.write_bytes(fasta(made_records(3000)))
    return path


@pytest.fixture(scope="module")
def near(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of the corpus on a local disk."""
    from tests.conftest import preprocess

    return preprocess(corpus, tmp_path_factory.mktemp("near") / "out", *OPTIONS, **SIZES)


def test_a_dataset_built_on_a_store_is_the_one_built_on_a_disk_and_is_read_back(run: Run, store: ObjectStore, corpus: Path, near: Path, tmp_path: Path) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    done = run("preprocess", "s3://bucket/in/made.fasta", "--out", OUT, *OPTIONS, **SIZES)
    assert done.returncode == 0, done.stderr
    assert digests(OUT) == digest(near)
    assert set(objects("s3://bucket")) == {f"sets/made/{name}" for name in digest(near)} | {"in/made.fasta"}, "something was left behind"
    again = run("preprocess", "s3://bucket/in/made.fasta", "--out", OUT, *OPTIONS, **SIZES)
    assert "already built" in again.stdout, again.stderr
    with ShardReader(OUT, cache_dir=tmp_path / "cache") as far, ShardReader(near) as local:
        pairs = list(islice(zip(far, local, strict=False), 2 * len(local)))
    assert len(pairs) == 2 * len(local)
    assert all(there.input_ids.tobytes() == here.input_ids.tobytes() for there, here in pairs)
