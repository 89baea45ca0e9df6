"""A build reads datasets of Hugging Face's library `datasets`, and that library loads shards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.manifest import Manifest
from tests.helpers.data.corpus import fasta, made_records, read_buckets, read_manifest
from tests.helpers.processes.command_line import Run

os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="module")
def datasets() -> Any:
    """Import `datasets` here and not at the top, because the import is slow."""
    return pytest.importorskip("datasets", reason="thdpack's extra `hf` is not installed")


def test_shards_load_as_a_hugging_face_dataset_with_the_right_features(
    datasets: Any, many_shards: Path, tmp_path: Path
) -> None:
    manifest = read_manifest(many_shards)
    files = [str(many_shards / entry.name) for entry in manifest.shards["train"]]
    loaded = datasets.load_dataset(
        "arrow", data_files={"train": files}, split="train", cache_dir=str(tmp_path)
    )
    features = {name: str(feature) for name, feature in loaded.features.items()}
    assert loaded.features["input_ids"].length == manifest.capacity
    assert loaded.features["input_ids"].feature.dtype == "uint8"
    assert loaded.features["cu_seqlens"].feature.dtype == "int32"
    assert loaded.features["record"].feature.dtype == "int64"
    assert [loaded.features[name].dtype for name in ("num_seqs", "num_tokens", "max_seqlen")] == [
        "int32"
    ] * 3
    assert set(features) == {
        "input_ids",
        "cu_seqlens",
        "num_seqs",
        "num_tokens",
        "max_seqlen",
        "record",
        "start",
    }
    stored = [row for row in read_buckets(many_shards) if row["split"] == "train"]
    assert len(loaded) == len(stored)
    for ours, theirs in zip(stored, loaded, strict=True):
        assert all(ours[name] == theirs[name] for name in features)


def test_hugging_face_loads_all_splits_from_the_folder_of_a_dataset_with_a_card(
    datasets: Any, run: Run, many_shards: Path, tmp_path: Path
) -> None:
    dataset = Path(shutil.copytree(many_shards, tmp_path / "dataset"))
    assert run("card", dataset).returncode == 0
    (dataset / "train" / "0123456789abcdef-00000-0.arrow").touch()  # left by another build
    loaded = datasets.load_dataset(str(dataset), cache_dir=str(tmp_path / "cache"))
    totals = read_manifest(dataset).splits
    assert {name: len(rows) for name, rows in loaded.items()} == {
        name: split.buckets for name, split in totals.items() if split.buckets
    }
    assert len(loaded) > 1


@pytest.fixture(scope="module")
def records() -> list[tuple[str, str]]:
    return [(f"p{i}", residues) for i, (_, residues) in enumerate(made_records(300, longest=150))]


def buckets(dataset: Path) -> list[Any]:
    return [
        (row["split"], row["input_ids"], row["cu_seqlens"], row["record"])
        for row in read_buckets(dataset)
    ]


@pytest.mark.parametrize("kind", ["saved", "saved in splits", "parquet", "arrow"])
def test_a_build_reads_a_hugging_face_dataset_from_disk(
    datasets: Any,
    build_here: Callable[..., Manifest],
    tmp_path: Path,
    records: list[tuple[str, str]],
    kind: str,
) -> None:
    table = datasets.Dataset.from_dict(
        {"id": [name for name, _ in records], "sequence": [residues for _, residues in records]}
    )
    place = tmp_path / "input"
    if kind == "saved":
        table.save_to_disk(place, num_shards=2)
        # `map` writes a cache-….arrow into the folder
        datasets.load_from_disk(place).map(lambda row: {"sequence": row["sequence"][::-1]})
        assert list(place.glob("cache-*.arrow"))
    elif kind == "saved in splits":
        datasets.DatasetDict(
            {"a": table.select(range(100)), "b": table.select(range(100, 300))}
        ).save_to_disk(place)
    elif kind == "parquet":
        place = tmp_path / "input.parquet"
        table.to_parquet(place)
    else:
        place = next(
            Path(entry["filename"])
            for entry in _saved(datasets, table, tmp_path / "arrow").cache_files
        )
    (tmp_path / "same.fasta").write_bytes(fasta(records))
    for source, out in ((place, "theirs"), (tmp_path / "same.fasta", "ours")):
        build_here(
            source, tmp_path / out, capacity=1024, max_seq_len=256, sequence_column="sequence"
        )
    assert buckets(tmp_path / "theirs") == buckets(tmp_path / "ours")


def _saved(datasets: Any, table: Any, folder: Path) -> Any:
    table.save_to_disk(folder)
    return datasets.load_from_disk(folder)
