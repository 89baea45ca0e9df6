"""Shards with a matching hash but bad content.

The reader checks cu_seqlens and ids, because bad values make kernels access memory out of bounds.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash

from pipeline.reader import ShardReader
from schemas.errors import DatasetError
from schemas.shard import shard_schema
from tests.helpers.data.corpus import read_manifest
from tests.helpers.data.many_shards import CAPACITY

Row = dict[str, Any]
MUTATIONS = 20_000 if os.environ.get("THDPACK_LONG") else 120


@pytest.fixture
def dataset(many_shards: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(many_shards, tmp_path / "dataset"))


def sign(dataset: Path, content: bytes) -> None:
    """Replace the content of the first shard, and its hash in the manifest."""
    manifest = read_manifest(dataset)
    entry, *others = manifest.shards["train"]
    (dataset / entry.name).write_bytes(content)
    signed = replace(entry, bytes=len(content), xxh3_128=xxhash.xxh3_128_hexdigest(content))
    text = replace(manifest, shards={**manifest.shards, "train": (signed, *others)}).to_json()
    (dataset / "manifest.json").write_text(text)


def first_shard(dataset: Path) -> Path:
    return dataset / read_manifest(dataset).shards["train"][0].name


def written(rows: list[Row], capacity: int) -> bytes:
    table = pa.Table.from_pylist(rows, schema=shard_schema(capacity))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=64)
    return bytes(sink.getvalue())


def read_first_shard(dataset: Path) -> None:
    with ShardReader(dataset, prefetch=0) as reader:
        reader[0]


def swap(row: Row) -> None:
    edges = row["cu_seqlens"]
    edges[1], edges[2] = edges[2], edges[1]


DAMAGES: dict[str, tuple[Callable[[Row], object], str]] = {
    "cu_seqlens decreases": (swap, "cu_seqlens"),
    "cu_seqlens has an empty sequence": (lambda row: row["cu_seqlens"].insert(1, 0), "cu_seqlens"),
    "cu_seqlens does not begin at 0": (
        lambda row: row["cu_seqlens"].__setitem__(0, 1),
        "cu_seqlens",
    ),
    "cu_seqlens ends before the capacity": (lambda row: row["cu_seqlens"].pop(), "cu_seqlens"),
    "cu_seqlens ends beyond the capacity": (
        lambda row: row["cu_seqlens"].__setitem__(-1, 1 << 30),
        "cu_seqlens",
    ),
    "cu_seqlens has a negative offset": (
        lambda row: row["cu_seqlens"].__setitem__(1, -5),
        "cu_seqlens",
    ),
    "cu_seqlens is empty": (lambda row: row["cu_seqlens"].clear(), "cu_seqlens"),
    "one sequence is too long": (lambda row: row.update(cu_seqlens=[0, CAPACITY]), "longer than"),
    "num_seqs is too large": (
        lambda row: row.update(num_seqs=len(row["cu_seqlens"])),
        "num_seqs",
    ),
    "num_seqs is negative": (lambda row: row.update(num_seqs=-1), "num_seqs"),
    "num_tokens is too large": (lambda row: row.update(num_tokens=CAPACITY + 1), "num_tokens"),
    "num_tokens is negative": (lambda row: row.update(num_tokens=-1), "num_tokens"),
    "a token outside the vocabulary": (lambda row: row["input_ids"].__setitem__(7, 33), "token"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_values_that_kernels_trust_are_checked(dataset: Path, name: str) -> None:
    change, said = DAMAGES[name]
    rows = pa.ipc.open_file(first_shard(dataset)).read_all().to_pylist()
    change(rows[3])
    sign(dataset, written(rows, CAPACITY))
    with pytest.raises(DatasetError, match=said) as error:
        read_first_shard(dataset)
    assert "bucket 3" in str(error.value)


def test_a_valid_shard_that_was_rewritten_is_read(dataset: Path) -> None:
    rows = pa.ipc.open_file(first_shard(dataset)).read_all().to_pylist()
    sign(dataset, written(rows, CAPACITY))
    read_first_shard(dataset)


def test_a_damaged_shard_with_a_matching_hash_is_read_or_raises_a_dataset_error(
    dataset: Path,
) -> None:
    rng = random.Random(int(os.environ.get("THDPACK_TEST_SEED", "0")))
    whole = first_shard(dataset).read_bytes()
    refused = 0
    for _ in range(MUTATIONS):
        content = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        if rng.random() < 0.2:
            del content[rng.randrange(len(content)) :]
        sign(dataset, bytes(content))
        try:
            read_first_shard(dataset)
        except DatasetError:
            refused += 1
    assert refused > MUTATIONS // 4
