"""`thdpack verify --deep` finds each contradiction between records/ and buckets.

A law is a rule that `--deep` checks. Most kinds of damage break one law only, so a test fails if
the check of that law is removed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schemas.shard import SPLITS
from tests.helpers.data.damaged_datasets import (
    OpenDataset,
    hash_of,
    laws,
    leave_out,
    other_residues,
    same_length,
    split_of,
    two,
)

HASH = "its residues in the bucket have another hash"
NOT_SEEN = "its first sequence is not in buckets exactly once"
ORIGINAL = "its duplicate_of is not an earlier kept record of the same hash"
PLACED = "has a split, shard or bucket although it was not kept"
PLACE = "not in the shard and bucket that its row names"
SHARD_SPLIT = "in a shard of another split than its row"
SIZE = "a piece does not have the expected number of residues"
SPLIT = "not in the split that the hash of its first piece decides"
START = "a piece does not start at a multiple of max_seq_len - 2"
UNKNOWN = "its row has another number of unknown letters than its sequence in the bucket"


# Each function damages a dataset, and returns the laws that the damage breaks.


def another_bucket(dataset: OpenDataset) -> set[str]:
    dataset.all(status="kept")[0]["bucket"] += 1
    return {PLACE, NOT_SEEN}


def another_shard(dataset: OpenDataset) -> set[str]:
    dataset.all(status="kept")[0]["shard"] = "train/none.arrow"
    return {PLACE, NOT_SEEN}


def another_hash(dataset: OpenDataset) -> set[str]:
    row = same_length(dataset)[0]
    row["hash"] = hash_of(other_residues(9, splits=["train"]))
    return {HASH}


def another_split(dataset: OpenDataset) -> set[str]:
    row = same_length(dataset)[0]
    residues = other_residues(40, splits=sorted({*SPLITS} - {row["split"]}))
    dataset.put(row, residues)
    row["hash"] = hash_of(residues)
    return {SPLIT}


def shard_of_another_split(dataset: OpenDataset) -> set[str]:
    row = same_length(dataset)[0]
    another_split(dataset)
    row["split"] = split_of(dataset.residues(row))
    return {SHARD_SPLIT}


def another_number_of_residues(dataset: OpenDataset) -> set[str]:
    same_length(dataset)[0]["residues"] += 1
    return {SIZE}


def another_start(dataset: OpenDataset) -> set[str]:
    bucket, i = dataset.place(same_length(dataset)[0])
    bucket["start"][i] = 1
    return {START, SIZE, NOT_SEEN}


def another_number_of_unknown_letters(dataset: OpenDataset) -> set[str]:
    same_length(dataset)[0]["unknown"] = 1
    return {UNKNOWN}


def fewer_unknown_letters_than_the_first_piece(dataset: OpenDataset) -> set[str]:
    row = next(row for row in dataset.all(status="kept") if row["id"].startswith("unknown"))
    assert row["unknown"] == 1
    row["unknown"] = 0
    return {UNKNOWN}


def a_sequence_of_a_record_that_was_not_kept(dataset: OpenDataset) -> set[str]:
    leave_out(same_length(dataset)[0])
    return {"FILE holds a record that was not kept", PLACE, SHARD_SPLIT, SPLIT}


def a_kept_record_without_sequence(dataset: OpenDataset) -> set[str]:
    row, other = dataset.all(status="duplicate")[0], same_length(dataset)[0]
    place = {name: other[name] for name in ("split", "shard", "bucket")}
    row.update(status="kept", duplicate_of=None, hash=bytes(16), **place)
    return {NOT_SEEN}


def a_sequence_twice_in_its_bucket(dataset: OpenDataset) -> set[str]:
    a, b = two(dataset, same_length(dataset), one_bucket=True)
    dataset.put(b, dataset.residues(a))
    bucket, i = dataset.place(b)
    bucket["record"][i] = a["ordinal"]
    leave_out(b)
    return {NOT_SEEN}


def a_sequence_in_two_buckets(dataset: OpenDataset) -> set[str]:
    a, b = next(
        (a, b)
        for a in same_length(dataset)
        for b in same_length(dataset)
        if a["split"] == b["split"] and a["bucket"] != b["bucket"]
    )
    dataset.put(b, dataset.residues(a))
    bucket, i = dataset.place(b)
    bucket["record"][i] = a["ordinal"]
    leave_out(b)
    return {PLACE}


def two_kept_records_of_one_hash(dataset: OpenDataset) -> set[str]:
    a, b = two(dataset, same_length(dataset))
    dataset.put(b, dataset.residues(a))
    b["hash"] = a["hash"]
    return {"kept although an earlier record has the same hash"}


def a_bucket_of_a_record_that_was_not_kept(dataset: OpenDataset) -> set[str]:
    dataset.all(status="duplicate")[0]["bucket"] = 0
    return {PLACED}


def a_shard_of_a_record_that_was_not_kept(dataset: OpenDataset) -> set[str]:
    dataset.all(status="duplicate")[0]["shard"] = dataset.all(status="kept")[0]["shard"]
    return {PLACED}


def a_split_of_a_record_that_was_not_kept(dataset: OpenDataset) -> set[str]:
    dataset.all(status="duplicate")[0]["split"] = "train"
    return {PLACED}


def an_original_of_a_kept_record(dataset: OpenDataset) -> set[str]:
    dataset.all(status="kept")[1]["duplicate_of"] = 0
    return {"is a duplicate without duplicate_of, or has duplicate_of but is no duplicate"}


def an_original_of_another_hash(dataset: OpenDataset) -> set[str]:
    dataset.all(status="duplicate")[-1]["duplicate_of"] = 0
    return {ORIGINAL}


def an_original_that_was_not_kept(dataset: OpenDataset) -> set[str]:
    _, second, third = dataset.all(id="copy")
    third["duplicate_of"] = second["ordinal"]
    return {ORIGINAL}


def an_original_after_its_duplicate(dataset: OpenDataset) -> set[str]:
    first, second, third = dataset.all(id="copy")
    bucket, i = dataset.place(first)
    bucket["record"][i] = second["ordinal"]
    third["duplicate_of"] = second["ordinal"]
    place = {name: first[name] for name in ("split", "shard", "bucket")}
    leave_out(first, "duplicate", second["ordinal"])
    second.update(status="kept", duplicate_of=None, **place)
    return {ORIGINAL}


def an_original_that_does_not_exist(dataset: OpenDataset) -> set[str]:
    dataset.all(id="copy")[1]["duplicate_of"] = 1 << 40  # the right value is 0
    return {ORIGINAL}


def a_record_that_does_not_exist(dataset: OpenDataset) -> set[str]:
    bucket, i = dataset.place(same_length(dataset)[0])
    bucket["record"][i] = len(dataset.rows)
    return {f"FILE: a bucket names a record outside 0..{len(dataset.rows) - 1}", NOT_SEEN}


def an_ordinal_that_does_not_exist(dataset: OpenDataset) -> set[str]:
    dataset.rows[0]["ordinal"] = -1
    return {f"FILE: an ordinal is outside 0..{len(dataset.rows) - 1}"}


def two_rows_of_one_record(dataset: OpenDataset) -> set[str]:
    dataset.rows[5]["ordinal"] = dataset.rows[6]["ordinal"]
    return {"a record does not have exactly one row"}


def another_source(dataset: OpenDataset) -> set[str]:
    dataset.rows[5]["source"] = "y.fasta"
    count = len(dataset.rows)
    return {f"{count - 1} records from x.fasta, the manifest says {count}"}


@pytest.mark.parametrize(
    "damage",
    [
        a_bucket_of_a_record_that_was_not_kept,
        a_kept_record_without_sequence,
        a_record_that_does_not_exist,
        a_sequence_in_two_buckets,
        a_sequence_of_a_record_that_was_not_kept,
        a_sequence_twice_in_its_bucket,
        a_shard_of_a_record_that_was_not_kept,
        a_split_of_a_record_that_was_not_kept,
        an_original_after_its_duplicate,
        an_original_of_a_kept_record,
        an_original_of_another_hash,
        an_original_that_does_not_exist,
        an_original_that_was_not_kept,
        an_ordinal_that_does_not_exist,
        another_bucket,
        another_hash,
        another_number_of_residues,
        another_number_of_unknown_letters,
        another_shard,
        another_source,
        another_split,
        another_start,
        fewer_unknown_letters_than_the_first_piece,
        shard_of_another_split,
        two_kept_records_of_one_hash,
        two_rows_of_one_record,
    ],
)
def test_each_contradiction_is_found(
    opened: Callable[..., OpenDataset], damage: Callable[[OpenDataset], set[str]]
) -> None:
    dataset = opened()
    expected = damage(dataset)
    assert laws(dataset) == expected
