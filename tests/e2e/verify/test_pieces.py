"""`thdpack verify --deep` finds damage to long records, which are cut into pieces."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers.data.damaged_datasets import (
    MOST,
    OpenDataset,
    laws,
    leave_out,
    two,
)

JOINED = "its joined pieces have another hash"
NOT_ONCE = "its residues are not all in buckets exactly once"
SHARD_SPLIT = "in a shard of another split than its row"
SPLIT = "not in the split that the hash of its first piece decides"
START = "a piece does not start at a multiple of max_seq_len - 2"


def a_piece_missing_and_another_twice(dataset: OpenDataset) -> set[str]:
    a, b = two(dataset, dataset.all(residues=3 * MOST + 5))
    dataset.put(b, dataset.residues(a, MOST), MOST)
    bucket, i = dataset.place(b, MOST)
    bucket["record"][i] = a["ordinal"]
    return {NOT_ONCE, JOINED}


def a_piece_twice(dataset: OpenDataset) -> set[str]:
    long = dataset.all(residues=3 * MOST + 5)
    a, b = next(
        (a, b) for a in dataset.all(residues=MOST) for b in long if a["split"] == b["split"]
    )
    dataset.put(a, dataset.residues(b, MOST))
    bucket, i = dataset.place(a)
    bucket["record"][i], bucket["start"][i] = b["ordinal"], MOST
    leave_out(a)
    return {NOT_ONCE}


def pieces_in_another_order(dataset: OpenDataset) -> set[str]:
    row = dataset.all(residues=3 * MOST + 5)[0]
    one, two = dataset.residues(row, MOST), dataset.residues(row, 2 * MOST)
    dataset.put(row, two, MOST)
    dataset.put(row, one, 2 * MOST)
    return {JOINED}


def a_piece_in_another_split(dataset: OpenDataset) -> set[str]:
    long = dataset.all(residues=3 * MOST + 5)
    a = next(row for row in long if row["split"] == "train")
    b = next(row for row in long if row["split"] == "valid")
    one, two = dataset.residues(a, MOST), dataset.residues(b, MOST)
    (bucket, i), (other, k) = dataset.place(a, MOST), dataset.place(b, MOST)
    dataset.put(a, two, MOST)
    dataset.put(b, one, MOST)
    bucket["record"][i], other["record"][k] = b["ordinal"], a["ordinal"]
    return {SHARD_SPLIT}


def a_piece_at_another_start(dataset: OpenDataset) -> set[str]:
    bucket, i = dataset.place(dataset.all(residues=3 * MOST + 5)[0], MOST)
    bucket["start"][i] += 5
    return {START, NOT_ONCE, JOINED}


def another_number_of_unknown_letters_in_all_pieces(dataset: OpenDataset) -> set[str]:
    dataset.all(residues=3 * MOST + 5)[0]["unknown"] = 1
    return {"its row has another number of unknown letters than its joined pieces"}


@pytest.mark.parametrize(
    "damage",
    [
        a_piece_at_another_start,
        a_piece_in_another_split,
        a_piece_missing_and_another_twice,
        a_piece_twice,
        another_number_of_unknown_letters_in_all_pieces,
        pieces_in_another_order,
    ],
)
def test_each_contradiction_of_pieces_is_found(
    opened: Callable[..., OpenDataset], damage: Callable[[OpenDataset], set[str]]
) -> None:
    dataset = opened("--long", "split")
    expected = damage(dataset)
    assert laws(dataset) == expected


def test_a_window_that_is_not_where_the_seed_puts_it_is_found(
    opened: Callable[..., OpenDataset],
) -> None:
    dataset = opened("--long", "crop")
    assert laws(dataset) == set()
    bucket, i = next(
        (bucket, i)
        for bucket in dataset.buckets
        for i, start in enumerate(bucket["start"])
        if start > 1
    )
    bucket["start"][i] -= 1
    assert laws(dataset) == {"its window is not where the seed puts it"}


def test_verify_compares_clusters_of_first_pieces_but_not_of_other_windows(
    opened: Callable[..., OpenDataset],
) -> None:
    """twin0 and twin1 have equal first pieces, but their windows begin later."""
    assert laws(opened("--long", "crop", "--clusters", "clusters.tsv")) == set()


def test_verify_compares_records_by_their_first_pieces_if_dedup_is_cropped(
    opened: Callable[..., OpenDataset],
) -> None:
    dataset = opened("--dedup", "cropped")
    a, b = two(dataset, dataset.all(residues=3 * MOST + 5))
    dataset.put(b, dataset.residues(a))
    assert laws(dataset) == {"kept although an earlier record is the same after cropping"}
