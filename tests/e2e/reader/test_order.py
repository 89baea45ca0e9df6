"""The global order is the same for any number of ranks, from any position, and after any resume."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.reader import ShardReader
from tests.helpers.data.corpus import read_buckets
from tests.helpers.data.delivered import STEP, WORLDS, Seen, seen, steps
from tests.helpers.data.many_shards import CAPACITY, MAX_SEQ_LEN


def test_a_reader_serves_the_buckets_of_the_shards(
    many_shards: Path, uninterrupted: list[Seen]
) -> None:
    stored = [row for row in read_buckets(many_shards) if row["split"] == "train"]
    with ShardReader(many_shards) as reader:
        assert len(reader) == len(stored)
        numbers = [reader.number_at(position) for position in range(len(uninterrupted))]
        slots = reader.manifest.slots
    assert sorted(numbers[: len(stored)]) == list(range(len(stored)))
    for bucket, number in zip(uninterrupted, numbers, strict=True):
        row = stored[number]
        edges = row["cu_seqlens"] + [CAPACITY] * (slots + 1 - len(row["cu_seqlens"]))
        assert bucket[1:] == (
            bytes(row["input_ids"]),
            np.array(edges, dtype=np.int32).tobytes(),
            row["num_seqs"],
            row["num_tokens"],
            MAX_SEQ_LEN,
        )


@pytest.mark.parametrize("prefetch", [0, 1, 9])
@pytest.mark.parametrize("world", WORLDS)
def test_the_order_is_the_same_for_any_number_of_ranks_and_any_prefetch(
    many_shards: Path, uninterrupted: list[Seen], world: int, prefetch: int
) -> None:
    delivered, state = steps(many_shards, world, len(uninterrupted) // STEP, prefetch=prefetch)
    assert delivered == uninterrupted
    assert state["position"] == len(uninterrupted)


@pytest.fixture(scope="module")
def stopped(many_shards: Path, uninterrupted: list[Seen]) -> list[dict[str, Any]]:
    """Return, for each step, the state of a run that stopped at this step. The runs have different
    numbers of ranks."""
    total = len(uninterrupted) // STEP
    return [
        steps(many_shards, WORLDS[stop % len(WORLDS)], stop, prefetch=0)[1] for stop in range(total)
    ]


@pytest.mark.parametrize("world", WORLDS)
def test_a_run_stopped_at_any_step_resumes_with_any_number_of_ranks(
    many_shards: Path, uninterrupted: list[Seen], stopped: list[dict[str, Any]], world: int
) -> None:
    for stop, state in enumerate(stopped):
        rest, _ = steps(many_shards, world, len(stopped) - stop, state=state, prefetch=0)
        assert rest == uninterrupted[stop * STEP :]


def test_a_run_that_changes_its_number_of_ranks_at_each_step_loses_nothing(
    many_shards: Path, uninterrupted: list[Seen]
) -> None:
    rng = random.Random(0)
    state, delivered = None, list[Seen]()
    while len(delivered) < len(uninterrupted):
        part, state = steps(many_shards, rng.choice(WORLDS), 1, state=state)
        delivered += part
    assert delivered == uninterrupted


def test_a_step_delivered_only_in_part_is_delivered_again_after_a_resume(
    many_shards: Path, uninterrupted: list[Seen]
) -> None:
    with ShardReader(many_shards, rank=1, world_size=4, buckets_per_step=STEP) as reader:
        for taken in range(1, 3 * STEP // 4 + 1):
            next(reader)
            assert reader.state_dict()["position"] == taken // (STEP // 4) * STEP
        next(reader)
        state = reader.state_dict()
    with ShardReader(many_shards, buckets_per_step=STEP) as reader:
        reader.load_state_dict(state)
        assert [seen(bucket) for bucket in islice(reader, STEP)] == uninterrupted[
            3 * STEP : 4 * STEP
        ]


@pytest.mark.parametrize("position", [5, 191, 10**9 + 7, 10**15])
def test_reading_can_begin_at_any_position(many_shards: Path, position: int) -> None:
    parts = []
    for world in (1, 4):
        readers = [
            ShardReader(many_shards, rank=rank, world_size=world, buckets_per_step=STEP)
            for rank in range(world)
        ]
        for reader in readers:
            reader.seek(position)
            assert reader.position == position
        parts.append(sorted(seen(next(reader)) for reader in readers for _ in range(STEP // world)))
        for rank, reader in enumerate(readers):
            assert next(reader).position % world == rank
            assert reader.position == position + STEP
            reader.close()
    assert parts[0] == parts[1]
    assert [bucket[0] for bucket in parts[0]] == list(range(position, position + STEP))


def test_a_seek_inside_a_loop_takes_effect(many_shards: Path) -> None:
    positions = []
    with ShardReader(many_shards) as reader:
        for bucket in reader:
            positions.append(bucket.position)
            if len(positions) == 3:
                reader.seek(100)
            if len(positions) == 5:
                break
        assert next(reader).position == 102
        assert next(iter(reader)).position == 103
    assert positions == [0, 1, 2, 100, 101]


def test_each_epoch_and_seed_has_its_own_permutation(many_shards: Path) -> None:
    orders = []
    for seed in (0, 1):
        with ShardReader(many_shards, seed=seed) as reader:
            for _ in range(2):
                orders.append(
                    [bucket.input_ids.tobytes() for bucket in islice(reader, len(reader))]
                )
    assert len({tuple(order) for order in orders}) == 4
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


def test_ranks_of_a_context_parallel_group_get_the_same_buckets(
    many_shards: Path, uninterrupted: list[Seen]
) -> None:
    groups = []
    for rank in range(8):
        with ShardReader(
            many_shards, rank=rank, world_size=8, context_parallel=2, buckets_per_step=STEP
        ) as reader:
            groups.append([seen(bucket) for bucket in islice(reader, STEP // 4)])
            assert reader.position == STEP
    for group in range(4):
        assert groups[2 * group] == groups[2 * group + 1] == uninterrupted[group:STEP:4]
