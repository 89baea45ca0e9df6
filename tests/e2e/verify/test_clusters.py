"""`thdpack verify --deep` finds splits and clusters that break the rules of `--clusters`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers.data.damaged_datasets import MOST, OpenDataset, Row, laws
from tests.helpers.oracles.slow_clusters import slow_split


def set_cluster(row: Row, *, same_split: bool) -> None:
    """Give a record another cluster.

    same_split: whether the new cluster belongs to the record's split
    """
    row["cluster"] = next(
        key
        for key in range(1, 100)
        if (slow_split(key, "", MOST, valid=0.3, test=0.2) == row["split"]) == same_split
    )


def a_cluster_of_another_split(dataset: OpenDataset) -> set[str]:
    set_cluster(dataset.all(id="same0")[0], same_split=False)
    return {"not in the split that its cluster decides"}


def a_cluster_shared_with_a_record_in_another_split(dataset: OpenDataset) -> set[str]:
    row = next(
        row
        for row in dataset.all(residues=40)
        if row["cluster"] is None and row["split"] != dataset.all(id="same0")[0]["split"]
    )
    row["cluster"] = dataset.all(id="same0")[0]["cluster"]
    return {"not in the split that its cluster decides"}


def another_cluster_of_an_equal_first_piece(dataset: OpenDataset) -> set[str]:
    one, other = dataset.all(id="twin0")[0], dataset.all(id="twin1")[0]
    assert one["cluster"] == other["cluster"] != None  # noqa: E711
    set_cluster(other, same_split=True)
    return {"in another cluster than a record with the same first piece"}


def another_cluster_of_a_duplicate(dataset: OpenDataset) -> set[str]:
    dataset.all(id="copy")[1]["cluster"] = 1
    return {"a duplicate in another cluster than the record that its duplicate_of names"}


@pytest.mark.parametrize(
    "damage",
    [
        a_cluster_of_another_split,
        a_cluster_shared_with_a_record_in_another_split,
        another_cluster_of_a_duplicate,
        another_cluster_of_an_equal_first_piece,
    ],
)
def test_each_contradiction_of_clusters_is_found(
    opened: Callable[..., OpenDataset], damage: Callable[[OpenDataset], set[str]]
) -> None:
    dataset = opened("--clusters", "clusters.tsv")
    expected = damage(dataset)
    assert laws(dataset) == expected


def test_a_cluster_in_a_dataset_built_without_the_option_clusters_is_found(
    opened: Callable[..., OpenDataset],
) -> None:
    dataset = opened()
    set_cluster(dataset.all(residues=40)[0], same_split=True)
    assert laws(dataset) == {"has a cluster although the dataset was built without --clusters"}
