"""`thdpack verify --deep` accepts good datasets, and names files that contradict the manifest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.helpers.data.corpus import read_manifest
from tests.helpers.data.damaged_datasets import (
    OpenDataset,
    deep,
    shallow,
    update_entries,
)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--long", "split"),
        ("--dedup", "cropped"),
        ("--clusters", "clusters.tsv"),
        ("--exclude", "test.fasta"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--length-multiple", "8", "--compression", "zstd")])
def test_a_dataset_without_damage_passes(
    built: Callable[..., Path], options: tuple[str, ...], more: tuple[str, ...]
) -> None:
    out = built(*options, *more)
    assert (shallow(out), deep(out)) == ([], [])


def test_counts_in_the_manifest_are_compared_with_the_records(
    opened: Callable[..., OpenDataset],
) -> None:
    dataset = opened()
    manifest = read_manifest(dataset.path)
    counts = dict(manifest.records_by_status)
    counts["kept"], counts["filtered"] = counts["kept"] - 1, 1
    update_entries(dataset.path, [], records_by_status=counts)
    assert shallow(dataset.path) == []
    assert deep(dataset.path) == [
        f"records/: {counts['kept'] + 1} records kept, the manifest says {counts['kept']}",
        "records/: 0 records filtered, the manifest says 1",
    ]


def rewrite(path: Path, **change: Any) -> None:
    table = pq.read_table(path)
    if "drop" in change:
        table = table.drop_columns([change["drop"]])
    pq.write_table(table.slice(change.get("begin", 0)), path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b"not Parquet"), "not a readable file of records/"),
        (lambda path: rewrite(path, drop="hash"), "column 'hash' is missing"),
        (lambda path: rewrite(path, drop="gene"), "column 'gene' is missing"),
        (lambda path: rewrite(path, begin=1), "rows, the manifest says"),
    ],
)
def test_a_file_of_records_that_contradicts_the_manifest_is_named(
    opened: Callable[..., OpenDataset], damage: Callable[[Path], None], message: str
) -> None:
    dataset = opened().path
    path = dataset / read_manifest(dataset).records[0].name
    damage(path)
    update_entries(dataset, [str(path.relative_to(dataset))])
    assert shallow(dataset) == []
    [line] = deep(dataset)
    assert line.startswith(str(path))
    assert message in line
