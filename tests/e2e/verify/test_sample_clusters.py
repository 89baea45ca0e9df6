"""`thdpack verify --deep` finds variants that break the rules of `--sample-clusters`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.helpers.data.corpus import read_manifest
from tests.helpers.data.damaged_datasets import OpenDataset, Row, deep, laws, save_manifest

PLACE = "not in the shard and bucket that its row names"
NOT_SEEN = "its first sequence is not in buckets exactly once"


def not_one(variant: int) -> str:
    where = f"buckets of variant {variant}" if variant else "buckets"
    return f"its cluster does not have exactly one record in {where}"


def members(dataset: OpenDataset, *, drawn: bool) -> list[Row]:
    """Return the kept records in clusters: those that variant 0 draws, or the others."""
    return [
        row
        for row in dataset.all(status="kept")
        if row["cluster"] is not None and (row["shard"] is not None) == drawn
    ]


def shown(dataset: OpenDataset) -> list[int]:
    found = read_manifest(dataset.path).sampled_clusters
    assert found is not None
    assert (found.clusters, found.members) == (2, 5)
    return list(found.members_shown)


def a_drawn_record_without_a_place(dataset: OpenDataset) -> set[str]:
    members(dataset, drawn=True)[0].update(shard=None, bucket=None)
    return {PLACE, not_one(0)}


def a_place_of_a_record_that_is_not_drawn(dataset: OpenDataset) -> set[str]:
    other = members(dataset, drawn=True)[0]
    members(dataset, drawn=False)[0].update(shard=other["shard"], bucket=other["bucket"])
    return {NOT_SEEN}


def a_bucket_without_a_shard(dataset: OpenDataset) -> set[str]:
    members(dataset, drawn=False)[0]["bucket"] = 0
    return {"has a shard without a bucket, or a bucket without a shard"}


def a_record_in_no_cluster_without_a_place(dataset: OpenDataset) -> set[str]:
    row = next(row for row in dataset.all(status="kept") if row["cluster"] is None)
    row.update(shard=None, bucket=None)
    return {PLACE, NOT_SEEN}


@pytest.mark.parametrize(
    "damage",
    [
        a_drawn_record_without_a_place,
        a_place_of_a_record_that_is_not_drawn,
        a_bucket_without_a_shard,
        a_record_in_no_cluster_without_a_place,
    ],
)
def test_each_contradiction_of_sampled_clusters_is_found(
    opened: Callable[..., OpenDataset], damage: Callable[[OpenDataset], set[str]]
) -> None:
    dataset = opened("--sample-clusters", "clusters.tsv")
    expected = damage(dataset)
    assert {line for line in laws(dataset) if "the manifest says" not in line} == expected


@pytest.mark.parametrize("long", ["truncate", "split", "crop", "drop"])
def test_an_undamaged_dataset_has_no_contradictions(
    opened: Callable[..., OpenDataset], long: str
) -> None:
    dataset = opened("--sample-clusters", "clusters.tsv", "--variants", "3", "--long", long)
    assert deep(dataset.path) == []


def test_a_variant_with_two_members_of_a_cluster_is_found(
    opened: Callable[..., OpenDataset],
) -> None:
    """Join the two clusters in records/. Each variant then has two members of one cluster."""
    dataset = opened("--sample-clusters", "clusters.tsv", "--variants", "2")
    keys = {row["cluster"] for row in members(dataset, drawn=True)}
    for row in dataset.rows:
        if row["cluster"] is not None:
            row["cluster"] = min(keys)
    assert laws(dataset) >= {not_one(0), not_one(1)}


def test_wrong_totals_of_clusters_in_the_manifest_are_found(
    opened: Callable[..., OpenDataset],
) -> None:
    dataset = opened("--sample-clusters", "clusters.tsv", "--variants", "2")
    manifest, first = read_manifest(dataset.path), shown(dataset)
    assert manifest.sampled_clusters is not None
    wrong = [first[0], 4 if first[1] == 3 else 3]
    save_manifest(
        dataset.path,
        replace(
            manifest,
            sampled_clusters=replace(manifest.sampled_clusters, members_shown=tuple(wrong)),
        ),
    )
    counts = "2 clusters with 5 members (members drawn so far, for each variant:"
    assert deep(dataset.path) == [
        f"{counts} {first[0]}, {first[1]}), the manifest says {counts} {wrong[0]}, {wrong[1]})"
    ]
