"""The global order: a pseudorandom permutation of all buckets for each epoch.

The bucket at any position is computed directly.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.reader.order.global_order import WINDOW_SHARDS, EpochOrder, Order, permuted
from pipeline.reader.order.split_shards import shard_id
from schemas.splitmix import mix, mix_all


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_a_keyed_permutation_contains_every_value_once(size: int, key: int) -> None:
    assert np.array_equal(np.sort(permuted(np.arange(size), size, key)), np.arange(size))


@given(st.integers(2, 300), st.integers(1, 5))
def test_permuting_with_an_array_of_keys_equals_permuting_with_each_key(
    size: int, runs: int
) -> None:
    keys = np.arange(runs, dtype=np.uint64) * np.uint64(7919)
    together = permuted(np.tile(np.arange(size), runs), size, np.repeat(keys, size)).reshape(
        runs, size
    )
    for row, key in zip(together, keys.tolist(), strict=True):
        assert np.array_equal(row, permuted(np.arange(size), size, key))


def test_all_permutations_of_four_values_are_equally_frequent() -> None:
    keys = np.array([mix_all(key) for key in range(6000)], dtype=np.uint64)
    orders = permuted(np.tile(np.arange(4), 6000), 4, np.repeat(keys, 4)).reshape(6000, 4)
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert counts.size == 24
    assert abs(counts - 250).max() < 6 * (6000 * 1 / 24 * 23 / 24) ** 0.5  # six standard deviations


def order_of(*variants: list[int], seed: int) -> Order:
    """Return an order. Each variant is a list: the number of buckets in each shard."""
    return Order([sum(counts) for counts in variants], lambda v: np.array(variants[v]), seed)


def whole(order: EpochOrder) -> list[tuple[int, int]]:
    """Return (shard, row) of every position of an epoch."""
    found: list[tuple[int, int]] = []
    for window in range(order.starts.size - 1):
        shards, rows = order.locate(
            window, np.arange(order.starts[window], order.starts[window + 1])
        )
        found += zip(shards.tolist(), rows.tolist(), strict=True)
    return found


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_has_every_bucket_once_and_single_lookups_give_the_same_order(
    counts: list[int], seed: int, epoch: int
) -> None:
    order = order_of(counts, seed=seed)
    found = whole(order.epoch(epoch))
    assert sorted(found) == [
        (shard, row) for shard, count in enumerate(counts) for row in range(count)
    ]
    for offset in (0, len(found) // 2, len(found) - 1):
        assert order.locate(epoch * order.buckets + offset) == found[offset]


_counts = st.lists(st.integers(1, 9), min_size=1, max_size=9)


@given(st.lists(_counts, min_size=1, max_size=5), st.integers(0, 5), st.integers(0, 11))
def test_epoch_e_reads_every_bucket_of_variant_e_mod_k_once(
    variants: list[list[int]], seed: int, epoch: int
) -> None:
    order = order_of(*variants, seed=seed)
    assert order.buckets == sum(map(sum, variants))
    number = epoch % len(variants)
    first = sum(sum(variants[e % len(variants)]) for e in range(epoch))
    found = [order.locate(first + offset) for offset in range(sum(variants[number]))]
    assert sorted(found) == [
        (shard_id(number, index), row)
        for index, count in enumerate(variants[number])
        for row in range(count)
    ]
    assert found == whole(order.epoch(epoch))
    last = first + len(found) - 1
    assert order.epoch_at(first) == order.epoch_at(last) == (epoch, first)
    assert order.epoch_at(last + 1) == (epoch + 1, last + 1)


def test_orders_of_different_epochs_and_seeds_differ() -> None:
    orders = [
        whole(order_of([50] * 10, seed=seed).epoch(epoch))
        for seed in (0, 1, 2, 2**63, 2**64 - 1)
        for epoch in (0, 1)
    ]
    assert len({tuple(order) for order in orders}) == len(orders)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_in_a_window_looks_random(seed: int) -> None:
    """Rank correlations ρ of the n buckets of a window are small: |ρ| < 4 / √n.

    The test correlates three pairs: the order in the window and the order on disk, the places on
    disk of buckets that are read one after another or a few positions apart, and the orders of two
    epochs."""
    counts = [4096] * (2 * WINDOW_SHARDS)
    order = order_of(counts, seed=seed).epoch(0)
    n = int(order.starts[1])
    shards, rows = order.locate(0, np.arange(n))
    slots = np.array([order.window_shards(0).index(shard) for shard in shards.tolist()])
    place = slots * 4096 + rows
    bound = 4 / n**0.5
    assert abs(np.corrcoef(place, np.arange(n))[0, 1]) < bound
    assert abs(np.corrcoef(place[:-1], place[1:])[0, 1]) < bound
    assert abs(np.corrcoef(slots[:-1], slots[1:])[0, 1]) < bound
    for stride in (2, 3, 8):
        assert abs(np.corrcoef(place[:-stride], place[stride:])[0, 1]) < bound
    other = np.concatenate(
        [permuted(np.arange(n), n, mix_all(mix_all(seed, epoch), 0)) for epoch in (0, 1)]
    ).reshape(2, n)
    assert abs(np.corrcoef(other)[0, 1]) < bound


def test_shards_are_listed_in_the_order_of_their_use() -> None:
    order = order_of([5] * 9, seed=3)
    after = order.shards_after(0, 1)
    expected = [
        *order.epoch(0).shards[2 * WINDOW_SHARDS :].tolist(),
        *order.epoch(1).shards.tolist(),
        *order.epoch(2).shards.tolist(),
    ]
    assert [next(after) for _ in expected] == expected


def test_any_position_is_found_without_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every lookup computes the shard order of one epoch and one element of one window."""
    epochs: list[int] = []
    permuted_values: list[int] = []

    def counted_epoch(
        counts: NDArray[np.int64], seed: int, epoch: int, first_shard: int
    ) -> EpochOrder:
        epochs.append(epoch)
        return EpochOrder(counts, seed, epoch, first_shard)

    def counted_permuted(values: NDArray[np.int64], size: int, key: int) -> NDArray[np.int64]:
        permuted_values.append(values.size)
        return permuted(values, size, key)

    monkeypatch.setattr("pipeline.reader.order.global_order.EpochOrder", counted_epoch)
    monkeypatch.setattr("pipeline.reader.order.global_order.permuted", counted_permuted)
    order = order_of([4000] * 10_000, seed=0)
    order.locate(10**9)
    order.locate(10**15 + 7)
    assert epochs == [10**9 // order.buckets, (10**15 + 7) // order.buckets]
    assert permuted_values == [1, 1]


def test_the_mixing_function_is_the_same_for_numbers_and_arrays() -> None:
    values = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    assert mix(values).tolist() == [mix_all(value) for value in values.tolist()]
    assert mix_all(1, 2) != mix_all(2, 1)
    # the published first output of SplitMix64 with seed 0
    assert mix_all(0) == 0xE220A8397B1DCDAF
