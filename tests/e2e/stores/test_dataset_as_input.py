"""A dataset in a store is not read as an input, and the error says what to name instead."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from pipeline.inputs.find import find_sources
from schemas.errors import InputError
from tests.helpers.stores.object_store import ObjectStore, put

SAID = "not FASTA: name the FASTA files that the dataset was made from: made.fasta"


@pytest.fixture
def prefix(store: ObjectStore, corpus: Path, near: Path) -> str:
    """Put a dataset and a FASTA file under one prefix of the store."""
    prefix = f"s3://bucket/{uuid.uuid4().hex}"
    for path in near.rglob("*"):
        if path.is_file():
            put(f"{prefix}/sets/one/{path.relative_to(near)}", path.read_bytes())
    put(f"{prefix}/made.fasta", corpus.read_bytes())
    return prefix


def test_a_dataset_in_a_store_is_refused_as_an_input_and_skipped_in_a_folder(prefix: str) -> None:
    dataset = f"{prefix}/sets/one"
    for text, kind in (
        (dataset, "a thdpack dataset"),
        (f"{dataset}/", "a thdpack dataset"),
        (f"{dataset}/manifest.json", "a part of a thdpack dataset"),
        (f"{dataset}/train", "a part of a thdpack dataset"),
        (f"{dataset}/*/*.parquet", "a part of a thdpack dataset"),
    ):
        with pytest.raises(InputError) as raised:
            find_sources((text,), "auto", spool=None)
        assert str(raised.value) == f"{text}: {kind}, {SAID}"
    [source], [skipped] = find_sources((prefix,), "auto", spool=None)
    assert source.url == f"{prefix}/made.fasta"
    assert skipped.line == f"{dataset}: a thdpack dataset, not an input"
    assert "sets/one/manifest.json" in skipped.names


def test_a_folder_of_a_store_may_be_named_like_a_folder_of_a_dataset(
    store: ObjectStore, corpus: Path
) -> None:
    url = f"s3://bucket/{uuid.uuid4().hex}/train"
    put(f"{url}/made.fasta", corpus.read_bytes())
    [source], skipped = find_sources((url,), "auto", spool=None)
    assert (source.url, skipped) == (f"{url}/made.fasta", [])
