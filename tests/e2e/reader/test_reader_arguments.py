"""The arguments of ShardReader: which values are refused, and with which advice."""

from __future__ import annotations

import inspect
import re
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.reader import Mixture, ShardReader
from schemas.errors import DatasetError, ManifestError
from tests.helpers.processes.command_line import REPO, Run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"world_size": 4, "buckets_per_step": 6},
            "buckets_per_step is 6, expected a multiple of 4, the number of ranks",
        ),
        (
            {"world_size": 4, "context_parallel": 2, "buckets_per_step": 3},
            "expected a multiple of 2, the number of context-parallel groups",
        ),
        (
            {"world_size": 4, "context_parallel": 3},
            "world_size is 4, expected a multiple of context_parallel, 3",
        ),
        ({"rank": 2, "world_size": 2}, "rank is 2 and world_size is 2"),
        ({"world_size": 0}, "rank is 0 and world_size is 0"),
        ({"prefetch": -1}, "prefetch is -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_invalid_arguments_are_refused(
    many_shards: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ShardReader(many_shards, **arguments)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("remote", "give the dataset's folder or URL as the first argument"),
        ("cache_limit", "use cache_bytes"),
        ("num_replicas", "use world_size"),
    ],
)
@pytest.mark.parametrize("reader", [ShardReader, Mixture])
def test_an_argument_of_another_library_is_refused_with_advice(
    many_shards: Path, reader: type[ShardReader | Mixture], name: str, advice: str
) -> None:
    source: Any = str(many_shards) if reader is ShardReader else [(str(many_shards), 1)]
    with pytest.raises(TypeError) as raised:
        reader(source, **{name: 1})
    assert str(raised.value) == f"{reader.__name__} has no argument {name}: {advice}"
    assert "cache_bytes" in inspect.signature(reader).parameters


def test_each_mosaicml_streaming_argument_that_the_docs_list_is_refused_with_advice(
    many_shards: Path,
) -> None:
    page = (REPO / "docs" / "coming-from.md").read_text().partition("## MosaicML Streaming")[2]
    left = "".join(row.split("|")[1] for row in page.splitlines() if row.startswith("| `"))
    names = set(re.findall(r"`([a-z_]+)`", left)) - inspect.signature(ShardReader).parameters.keys()
    assert len(names) > 15
    for name in names:
        with pytest.raises(TypeError, match=f"ShardReader has no argument {name}: "):
            ShardReader(many_shards, **{name: 1})  # type: ignore[arg-type]


def test_missing_and_empty_splits_are_refused(many_shards: Path, tmp_path: Path, run: Run) -> None:
    with pytest.raises(DatasetError, match="no split 'dev'; it has train, valid, test"):
        ShardReader(many_shards, "dev")
    (tmp_path / "one.fasta").write_text(">one\nMKV\n")
    assert (
        run(
            "preprocess", tmp_path / "one.fasta", "--out", tmp_path / "one", "--split", "train=1"
        ).returncode
        == 0
    )
    with pytest.raises(DatasetError, match="split 'valid' is empty: build the dataset with a larg"):
        ShardReader(tmp_path / "one", "valid")
    # a reader of a dataset with a single bucket repeats this bucket
    with ShardReader(tmp_path / "one", rank=3, world_size=5) as reader:
        assert [bucket.position for bucket in islice(reader, 3)] == [3, 8, 13]


def test_a_url_is_refused_as_the_cache_folder(many_shards: Path) -> None:
    for url in ("s3://bucket/cache", Path("s3://bucket/cache")):
        with pytest.raises(ValueError, match="cache must be a folder on a local disk"):
            ShardReader(many_shards, cache_dir=url)


def test_numpy_integers_are_accepted(many_shards: Path) -> None:
    with ShardReader(many_shards, seed=np.int64(3)) as reader:  # type: ignore[arg-type]
        assert type(reader.state_dict()["seed"]) is int


def test_a_missing_folder_and_a_missing_manifest_have_different_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ManifestError, match=f"data/typo: there is no such folder in {tmp_path}"):
        ShardReader("data/typo")
    (tmp_path / "data" / "typo").mkdir(parents=True)
    with pytest.raises(ManifestError, match=r"data/typo: no manifest\.json"):
        ShardReader("data/typo")
