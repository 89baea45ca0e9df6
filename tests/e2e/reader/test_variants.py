"""The reader moves through the K variants of a dataset: epoch e reads variant e mod K.

A cycle is K epochs.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from pipeline.reader import Mixture, ShardReader
from tests.helpers.data.corpus import read_buckets, read_manifest
from tests.helpers.data.delivered import STEP, WORLDS, Seen, seen, steps
from tests.helpers.data.many_shards import build_many_shards

VARIANTS = 3


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset of 3 variants, each of about 90 buckets in about 8 shards."""
    folder = tmp_path_factory.mktemp("variants")
    return build_many_shards(folder, "--variants", str(VARIANTS), records=400)


@pytest.fixture(scope="module")
def counts(dataset: Path) -> list[int]:
    """Return the number of train buckets of each variant."""
    manifest = read_manifest(dataset)
    found = [manifest.splits_of(variant)["train"].buckets for variant in range(VARIANTS)]
    assert len(set(found)) > 1  # otherwise, all epochs would have the same length
    return found


@pytest.fixture(scope="module")
def whole(dataset: Path, counts: list[int]) -> list[Seen]:
    """Return the buckets of one cycle and of half an epoch, read by a single rank."""
    count = (sum(counts) + counts[0] // 2) // STEP * STEP
    with ShardReader(dataset) as reader:
        assert len(reader) == sum(counts)
        return [seen(bucket) for bucket in islice(reader, count)]


def test_each_epoch_reads_the_next_variant_in_a_fresh_order(
    dataset: Path, counts: list[int]
) -> None:
    orders = []
    with ShardReader(dataset) as reader:
        for epoch in range(2 * VARIANTS):
            variant = epoch % VARIANTS
            buckets = list(islice(reader, counts[variant]))
            assert {bucket.epoch for bucket in buckets} == {epoch}
            stored = [row for row in read_buckets(dataset, variant) if row["split"] == "train"]
            numbers = [reader.number_at(bucket.position) for bucket in buckets]
            first = sum(counts[:variant])
            assert sorted(numbers) == list(range(first, first + counts[variant]))
            for bucket, number in zip(buckets, numbers, strict=True):
                row = stored[number - first]
                assert bucket.input_ids.tobytes() == bytes(row["input_ids"])
                assert reader[number].input_ids.tobytes() == bytes(row["input_ids"])
                assert reader.records(number).tolist() == row["record"]
            orders.append(numbers)
        assert reader[0].epoch == -1
        assert reader.position == 2 * len(reader)
    for variant in range(VARIANTS):
        assert orders[variant] != orders[variant + VARIANTS]


@pytest.mark.parametrize("world", WORLDS)
def test_the_order_across_variants_is_the_same_for_any_number_of_ranks(
    dataset: Path, whole: list[Seen], world: int
) -> None:
    delivered, state = steps(dataset, world, len(whole) // STEP)
    assert delivered == whole
    assert state["position"] == len(whole)


@pytest.fixture(scope="module")
def stopped(dataset: Path, whole: list[Seen]) -> list[dict[str, Any]]:
    """Return, for each step, the state of a run that stopped at this step. The runs have different
    numbers of ranks."""
    return [
        steps(dataset, WORLDS[stop % len(WORLDS)], stop, prefetch=0)[1]
        for stop in range(len(whole) // STEP)
    ]


@pytest.mark.parametrize("world", WORLDS)
def test_a_run_stopped_at_any_step_of_any_variant_resumes_with_any_number_of_ranks(
    dataset: Path, whole: list[Seen], stopped: list[dict[str, Any]], world: int
) -> None:
    for stop, state in enumerate(stopped):
        rest, _ = steps(dataset, world, len(stopped) - stop, state=state, prefetch=0)
        assert rest == whole[stop * STEP :]


@pytest.mark.parametrize("cycle", [1, 10**6])
def test_reading_can_begin_at_any_position_of_a_later_cycle(
    dataset: Path, counts: list[int], cycle: int
) -> None:
    with ShardReader(dataset) as reader:
        for variant in range(VARIANTS):
            begin = cycle * len(reader) + sum(counts[:variant])
            reader.seek(begin - 1)
            before, after = next(reader), next(reader)
            assert (before.position, after.position) == (begin - 1, begin)
            assert before.epoch == cycle * VARIANTS + variant - 1
            assert after.epoch == cycle * VARIANTS + variant


def test_each_dataset_of_a_mixture_counts_its_own_epochs(
    dataset: Path, many_shards: Path, counts: list[int]
) -> None:
    variant_of = {
        bytes(row["input_ids"]): variant
        for variant in range(VARIANTS)
        for row in read_buckets(dataset, variant)
    }
    with Mixture([(dataset, 3), (many_shards, 1)]) as mixture:
        epochs = [
            (bucket.epoch, variant_of[bucket.input_ids.tobytes()])
            for bucket in islice(mixture, 4 * sum(counts) // 3 + 40)
            if bucket.input_ids.tobytes() in variant_of
        ]
    assert all(epoch % VARIANTS == variant for epoch, variant in epochs)
    assert [epoch for epoch, _ in epochs] == sorted(epoch for epoch, _ in epochs)
    assert {epoch for epoch, _ in epochs} == set(range(VARIANTS + 1))


def test_shards_of_all_variants_are_fetched_into_the_cache_once(
    dataset: Path, whole: list[Seen], tmp_path: Path
) -> None:
    with ShardReader(dataset, cache_dir=tmp_path / "cache") as reader:
        assert [seen(bucket) for bucket in islice(reader, len(whole))] == whole
        total = sum(
            entry.bytes for _, split, entry in reader.manifest.all_shards() if split == "train"
        )
        assert reader.bytes_fetched == total
