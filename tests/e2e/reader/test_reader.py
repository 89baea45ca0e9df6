"""The reader's order: the same for every number of ranks, entered anywhere; through real readers of a real dataset, as lists."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.reader import ShardReader
from schemas.bucket import Bucket
from schemas.errors import DatasetError, StateError
from tests.conftest import OurThreads
from tests.helpers.data.corpus import fasta, made_records, read_buckets
from tests.helpers.processes.command_line import REPO, Run
from tests.helpers.stores.stores import open_in

WORLDS = (1, 2, 3, 4, 6, 8)
STEP = 24

Seen = tuple[int, bytes, bytes, int, int, int]


def seen(bucket: Bucket) -> Seen:
    """Everything a bucket has, to compare."""
    return (
        bucket.position,
        bucket.input_ids.tobytes(),
        bucket.cu_seqlens.tobytes(),
        bucket.num_seqs,
        bucket.num_tokens,
        bucket.max_seqlen,
    )


def steps(
    dataset: Path, world: int, count: int, *, state: dict[str, Any] | None = None, prefetch: int = 2
) -> tuple[list[Seen], dict[str, Any]]:
    """What `world` ranks deliver in `count` steps, put together step by step, and the state they end with."""
    readers = [
        ShardReader(dataset, rank=rank, world_size=world, buckets_per_step=STEP, prefetch=prefetch)
        for rank in range(world)
    ]
    delivered: list[Seen] = []
    for reader in readers:
        if state is not None:
            reader.load_state_dict(state)
    first = readers[0].position
    for step in range(count):
        shares = [iter([seen(next(reader)) for _ in range(STEP // world)]) for reader in readers]
        delivered += [
            next(shares[position % world])
            for position in range(first + step * STEP, first + (step + 1) * STEP)
        ]
    states = [reader.state_dict() for reader in readers]
    for reader in readers:
        reader.close()
    assert all(other == states[0] for other in states)
    return delivered, states[0]


@pytest.fixture(scope="module")
def uninterrupted(many_shards: Path) -> list[Seen]:
    """One rank, one and a half epochs."""
    with ShardReader(many_shards, buckets_per_step=STEP) as reader:
        count = -(-3 * len(reader) // (2 * STEP)) * STEP
        found = [seen(bucket) for bucket in islice(reader, count)]
    assert [bucket[0] for bucket in found] == list(range(count))
    return found


def test_the_buckets_are_those_of_the_shards(many_shards: Path, uninterrupted: list[Seen]) -> None:
    stored = [row for row in read_buckets(many_shards) if row["split"] == "train"]
    with ShardReader(many_shards) as reader:
        assert len(reader) == len(stored)
        numbers = [reader.number_at(position) for position in range(len(uninterrupted))]
        slots = reader.manifest.slots
    assert sorted(numbers[: len(stored)]) == list(range(len(stored)))
    for bucket, number in zip(uninterrupted, numbers, strict=True):
        row = stored[number]
        edges = row["cu_seqlens"] + [512] * (slots + 1 - len(row["cu_seqlens"]))
        assert bucket[1:] == (
            bytes(row["input_ids"]),
            np.array(edges, dtype=np.int32).tobytes(),
            row["num_seqs"],
            row["num_tokens"],
            256,
        )


@pytest.mark.parametrize("prefetch", [0, 1, 9])
@pytest.mark.parametrize("world", WORLDS)
def test_any_number_of_ranks_and_any_prefetch_deliver_one_order(
    many_shards: Path, uninterrupted: list[Seen], world: int, prefetch: int
) -> None:
    delivered, state = steps(many_shards, world, len(uninterrupted) // STEP, prefetch=prefetch)
    assert delivered == uninterrupted
    assert state["position"] == len(uninterrupted)


@pytest.fixture(scope="module")
def stopped(many_shards: Path, uninterrupted: list[Seen]) -> list[dict[str, Any]]:
    """States of runs that stopped at each step, on as many ranks as there may be."""
    total = len(uninterrupted) // STEP
    return [
        steps(many_shards, WORLDS[stop % len(WORLDS)], stop, prefetch=0)[1] for stop in range(total)
    ]


@pytest.mark.parametrize("world", WORLDS)
def test_a_run_stopped_at_any_step_goes_on_with_any_number_of_ranks(
    many_shards: Path, uninterrupted: list[Seen], stopped: list[dict[str, Any]], world: int
) -> None:
    for stop, state in enumerate(stopped):
        rest, _ = steps(many_shards, world, len(stopped) - stop, state=state, prefetch=0)
        assert rest == uninterrupted[stop * STEP :]


def test_a_run_that_changes_its_ranks_again_and_again_loses_nothing(
    many_shards: Path, uninterrupted: list[Seen]
) -> None:
    rng = random.Random(0)
    state, delivered = None, list[Seen]()
    while len(delivered) < len(uninterrupted):
        part, state = steps(many_shards, rng.choice(WORLDS), 1, state=state)
        delivered += part
    assert delivered == uninterrupted


def test_a_step_that_was_not_delivered_whole_is_delivered_again(
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
def test_any_position_can_be_entered(many_shards: Path, position: int) -> None:
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


def test_seeking_inside_a_loop_goes_on_from_there(many_shards: Path) -> None:
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


def test_epochs_and_seeds_are_other_permutations(many_shards: Path) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"world_size": 4, "buckets_per_step": 6},
            "buckets_per_step is 6, no multiple of the 4 ranks",
        ),
        (
            {"world_size": 4, "context_parallel": 2, "buckets_per_step": 3},
            "no multiple of the 2 context-parallel groups",
        ),
        (
            {"world_size": 4, "context_parallel": 3},
            "world_size is 4, no multiple of context_parallel, 3",
        ),
        ({"rank": 2, "world_size": 2}, "rank is 2 of 2"),
        ({"world_size": 0}, "rank is 0 of 0"),
        ({"prefetch": -1}, "prefetch is -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    many_shards: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ShardReader(many_shards, **arguments)


def test_only_the_url_is_needed_and_a_step_is_one_bucket_for_each_rank(many_shards: Path) -> None:
    with ShardReader(many_shards, rank=2, world_size=3) as reader:
        assert [next(reader).position for _ in range(3)] == [2, 5, 8]
        assert reader.state_dict() == {
            "version": 1,
            "manifest": reader.manifest.digest,
            "split": "train",
            "seed": 0,
            "position": 9,
        }


def test_a_state_of_something_else_is_refused_with_the_reason(
    many_shards: Path, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "other.fasta").write_bytes(fasta(made_records(30, seed=1, longest=200)))
    assert run("preprocess", tmp_path / "other.fasta", "--out", tmp_path / "other").returncode == 0
    with ShardReader(many_shards) as reader, ShardReader(tmp_path / "other") as other:
        next(reader)
        state = reader.state_dict()
        for wrong, reason in [
            (other.state_dict(), "another dataset: its manifest digest"),
            ({**state, "seed": 1}, "another seed: it is 1, here it is 0"),
            ({**state, "split": "valid"}, "another split"),
            ({**state, "version": 2}, "version 2, this thdpack knows version 1"),
            ({"version": 1, "position": 3}, "no manifest, seed, split in it"),
            ({**state, "position": -1}, "position -1"),
            ({**state, "position": 1.5}, "position 1.5"),
            ({**state, "position": True}, "position True"),
            ({**state, "position": 1 << 62}, "below 2.62"),
        ]:
            with pytest.raises(StateError, match=reason):
                reader.load_state_dict(wrong)
            assert reader.state_dict() == state
        for position in (-1, 1 << 62):
            with pytest.raises(ValueError, match="position"):
                reader.seek(position)


def test_buckets_by_number_are_in_stored_order(many_shards: Path) -> None:
    stored = [
        bytes(row["input_ids"]) for row in read_buckets(many_shards) if row["split"] == "train"
    ]
    with ShardReader(many_shards) as reader:
        assert [reader[number].input_ids.tobytes() for number in range(len(reader))] == stored
        next(reader)
        number = random.Random(0).randrange(len(reader))
        assert reader[number].position == -1
        for outside in (-1, len(reader)):
            with pytest.raises(IndexError):
                reader[outside]
        with pytest.raises(ValueError, match="position is -1"):
            reader.number_at(-1)


def test_the_other_split_and_splits_that_are_not_there(
    many_shards: Path, tmp_path: Path, run: Run
) -> None:
    valid = [
        bytes(row["input_ids"]) for row in read_buckets(many_shards) if row["split"] == "valid"
    ]
    with ShardReader(many_shards, "valid") as reader:
        assert sorted(
            bucket.input_ids.tobytes() for bucket in islice(reader, len(reader))
        ) == sorted(valid)
    with pytest.raises(DatasetError, match="no split 'test'; it has train, valid"):
        ShardReader(many_shards, "test")
    (tmp_path / "one.fasta").write_text(">one\nMKV\n")
    assert (
        run(
            "preprocess", tmp_path / "one.fasta", "--out", tmp_path / "one", "--valid-fraction", "0"
        ).returncode
        == 0
    )
    with pytest.raises(DatasetError, match="split 'valid' is empty"):
        ShardReader(tmp_path / "one", "valid")
    with ShardReader(
        tmp_path / "one", rank=3, world_size=5
    ) as reader:  # one bucket, again and again
        assert [bucket.position for bucket in islice(reader, 3)] == [3, 8, 13]


def test_compressed_shards_give_the_same_buckets(
    many_shards: Path, uninterrupted: list[Seen], run: Run, tmp_path: Path
) -> None:
    options = ("--capacity", "512", "--max-seq-len", "256", "--compression", "zstd")
    assert (
        run(
            "preprocess",
            many_shards.parent / "made.fasta",
            "--out",
            tmp_path / "zstd",
            *options,
            partition_bytes=4000,
        ).returncode
        == 0
    )
    with ShardReader(tmp_path / "zstd") as reader:
        kept = list(islice(reader, len(uninterrupted)))
    assert [seen(bucket) for bucket in kept] == uninterrupted
    for array in (kept[0].input_ids, kept[0].cu_seqlens):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_what_is_delivered_cannot_be_changed_and_outlives_the_reader(
    many_shards: Path, uninterrupted: list[Seen]
) -> None:
    with ShardReader(many_shards) as reader:
        kept = list(islice(reader, len(uninterrupted)))
    assert [seen(bucket) for bucket in kept] == uninterrupted
    for array in (kept[0].input_ids, kept[0].cu_seqlens):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_closed_or_dropped_reader_leaves_no_thread(
    many_shards: Path, our_threads: OurThreads
) -> None:
    with ShardReader(many_shards) as reader:
        next(reader)
        assert our_threads()
    assert not our_threads()
    with pytest.raises(ValueError, match="closed"):
        next(reader)
    with pytest.raises(ValueError, match="closed"):
        next(iter(reader))
    with pytest.raises(ValueError, match="closed"):
        reader.seek(3)
    with pytest.raises(ValueError, match="closed"):
        reader[0]
    reader.close()
    reader = ShardReader(many_shards)
    next(reader)
    assert our_threads()
    del reader
    assert not our_threads()
    with pytest.raises(DatasetError):
        ShardReader(many_shards / "nowhere")
    assert not our_threads()


def test_an_unclosed_reader_does_not_keep_the_interpreter_alive(many_shards: Path) -> None:
    program = f"from pipeline.reader import ShardReader\nr = ShardReader({str(many_shards)!r}, prefetch=9)\nnext(r)\nprint('done')"
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_reader_may_be_closed_from_another_thread_at_any_moment(
    many_shards: Path, tmp_path: Path, our_threads: OurThreads
) -> None:
    cache = tmp_path / "cache"
    for attempt in range(60):
        reader = ShardReader(many_shards, cache_dir=cache, prefetch=attempt % 3)
        closing = threading.Timer(random.Random(attempt).uniform(0, 0.01), reader.close)
        closing.start()
        with pytest.raises(ValueError, match="closed"):
            for _ in reader:
                pass
        closing.join()
    assert not our_threads()
    assert not open_in(cache)


def test_numpy_integers_are_numbers(many_shards: Path) -> None:
    with ShardReader(many_shards, seed=np.int64(3)) as reader:  # type: ignore[arg-type]
        assert type(reader.state_dict()["seed"]) is int


def test_the_reader_needs_nothing_that_training_machines_lack() -> None:
    program = "import sys\nimport pipeline.reader, pipeline.reader.mixture, pipeline.reader.adapters, pipeline.reader.benchmark\nprint(*sys.modules)"
    loaded = set(
        subprocess.run(
            [sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert not loaded & {
        "torch",
        "numba",
        "polars",
        "datasets",
        "pandas",
        "Bio",
        "isal",
        "tyro",
        "rich",
    }
    assert not {name for name in loaded if name.endswith("_kernel")}
