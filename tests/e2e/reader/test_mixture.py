"""Mixtures have exact proportions, keep each dataset's order, and are the same for any number
of ranks."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.helpers.stores.stores  # noqa: F401 (registers troubled://)
from pipeline.reader import Mixture, ShardReader
from pipeline.reader.order.mixture_order import (
    assigned,
    assigned_in_phases,
    phases_of,
    whole_shares,
)
from schemas.errors import DatasetError, StateError
from schemas.shard import Bucket
from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.data.many_shards import CAPACITY, MAX_SEQ_LEN
from tests.helpers.processes.command_line import Run, preprocess


@pytest.fixture(scope="module")
def datasets(many_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Build three datasets of about 215, 30 and 1 buckets, with the same capacity.

    The dataset of 30 buckets has a smaller max_seq_len than the other two.
    """
    folder = tmp_path_factory.mktemp("mixture")
    made = [many_shards]
    for name, count, longest, options in (
        ("small", 160, 100, ("--max-seq-len", "100")),
        ("tiny", 3, 80, ("--max-seq-len", "128")),
    ):
        (folder / f"{name}.fasta").write_bytes(fasta(made_records(count, seed=7, longest=longest)))
        made.append(
            preprocess(
                folder / f"{name}.fasta", folder / name, "--capacity", str(CAPACITY), *options
            )
        )
    return made


def seen(bucket: Bucket) -> tuple[int, bytes, bytes]:
    return bucket.position, bucket.input_ids.tobytes(), bucket.cu_seqlens.tobytes()


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 10**12), st.integers(0, 3)
)
def test_each_run_of_positions_has_exact_proportions_and_keeps_each_datasets_order(
    weights: list[int], run: int, seed: int
) -> None:
    """A run is a group of consecutive positions in which a mixture has exact proportions."""
    shares = whole_shares(weights)
    length = sum(shares)
    datasets, inside = assigned(np.arange(run * length, (run + 3) * length), shares, seed)
    for part in range(3):
        drawn = Counter(datasets[part * length : (part + 1) * length].tolist())
        assert [drawn[i] for i in range(len(shares))] == list(shares)
    for i, share in enumerate(shares):
        assert inside[datasets == i].tolist() == list(range(run * share, (run + 3) * share))
    some = np.arange(run * length, (run + 3) * length, 5)
    assert assigned(some, shares, seed)[0].tolist() == datasets[::5].tolist()
    assert assigned(some, shares, seed)[1].tolist() == inside[::5].tolist()


@given(
    st.integers(1, 4).flatmap(
        lambda count: st.lists(
            st.lists(st.integers(1, 9), min_size=count, max_size=count), min_size=1, max_size=4
        )
    ),
    st.lists(st.integers(1, 200), min_size=3, max_size=3),
    st.integers(0, 3),
)
def test_changes_of_weights_give_exact_proportions_and_lose_or_repeat_no_bucket(
    weights: list[list[int]], lengths: list[int], seed: int
) -> None:
    begins = np.cumsum(lengths).tolist()
    changes = list(zip(begins, weights[1:], strict=False))
    phases = phases_of(weights[0], changes, seed)
    count = begins[-1] + 100
    datasets, inside = assigned_in_phases(np.arange(count), phases, seed)
    for i in range(len(weights[0])):  # no bucket is lost or repeated when weights change
        assert inside[datasets == i].tolist() == list(range(np.count_nonzero(datasets == i)))
    ends = [*(phase.begin for phase in phases[1:]), count]
    for phase, end in zip(phases, ends, strict=True):
        length = sum(phase.shares)
        for first in range(phase.begin, end - length + 1, length):
            drawn = Counter(datasets[first : first + length].tolist())
            assert [drawn[i] for i in range(len(phase.shares))] == list(phase.shares)
    some = np.arange(0, count, 7)
    found = assigned_in_phases(some, phases, seed)
    assert found[0].tolist() == datasets[::7].tolist()
    assert found[1].tolist() == inside[::7].tolist()


def test_each_of_two_ranks_draws_from_both_datasets_of_a_mixture() -> None:
    drawn, _ = assigned(np.arange(2000), (1, 1), 0)
    assert 400 < drawn[::2].sum() < 600
    assert drawn.tolist() != assigned(np.arange(2000), (1, 1), 1)[0].tolist()


def test_weights_are_converted_to_whole_shares_without_rounding() -> None:
    assert whole_shares([0.7, 0.2, 0.1]) == (7, 2, 1)
    assert whole_shares([0.1, 0.1]) == (1, 1)
    assert whole_shares(["1/3", Fraction(2, 3)]) == (1, 2)
    assert whole_shares([300, 100]) == (3, 1)
    assert whole_shares([5]) == (1,)
    for weights, message in [
        ([], "at least one dataset"),
        ([0.5, 0], "above 0"),
        ([1, -1], "above 0"),
        (["a"], "not a number"),
        ([1 / 3, 0.5], "round the weights"),
    ]:
        with pytest.raises(ValueError, match=message):
            whole_shares(weights)


def test_a_mixture_keeps_the_order_of_each_dataset_for_any_number_of_ranks(
    datasets: list[Path],
) -> None:
    mix = list(zip(datasets, (0.7, 0.2, 0.1), strict=True))
    count = 600
    with Mixture(mix, seed=3) as mixture:
        one = list(islice(mixture, count))
    assert [bucket.position for bucket in one] == list(range(count))
    drawn, inside = assigned(np.arange(count), (7, 2, 1), 3)
    for i, dataset in enumerate(datasets):
        with ShardReader(dataset, seed=3) as reader:
            mine = [bucket for bucket, of in zip(one, drawn.tolist(), strict=True) if of == i]
            assert [b.input_ids.tobytes() for b in mine] == [
                b.input_ids.tobytes() for b in islice(reader, len(mine))
            ]
            assert inside[drawn == i].tolist() == list(range(len(mine)))
    assert len({bucket.cu_seqlens.shape for bucket in one}) == 1
    assert {bucket.max_seqlen for bucket in one} == {MAX_SEQ_LEN}
    for world in (2, 3, 4, 6, 8):
        mixtures = [
            Mixture(mix, seed=3, rank=rank, world_size=world, buckets_per_step=24)
            for rank in range(world)
        ]
        parts = [
            [seen(bucket) for bucket in islice(mixture, count // world)] for mixture in mixtures
        ]
        shares = [iter(part) for part in parts]
        assert [next(shares[position % world]) for position in range(count)] == [
            seen(bucket) for bucket in one
        ]
        for mixture in mixtures:
            mixture.close()


@pytest.mark.parametrize("changes", [(), ((72, (1, 1, 1)), (120, (1, 5, 2)))])
def test_a_mixture_resumes_at_any_step_with_any_number_of_ranks(
    datasets: list[Path], changes: tuple[tuple[int, tuple[int, ...]], ...]
) -> None:
    mix = list(zip(datasets, (3, 2, 1), strict=True))
    with Mixture(mix, buckets_per_step=24, changes=changes) as mixture:
        one = [seen(bucket) for bucket in islice(mixture, 240)]
    for stop, world in enumerate((1, 2, 3, 4, 6, 8, 12)):
        with Mixture(mix, buckets_per_step=24, rank=1, world_size=4, changes=changes) as mixture:
            for _ in range(stop * 6 + stop % 3):
                next(mixture)
            state = mixture.state_dict()
        assert state["position"] == stop * 24
        rest = []
        for rank in range(world):
            with Mixture(
                mix, buckets_per_step=24, rank=rank, world_size=world, changes=changes
            ) as mixture:
                mixture.load_state_dict(state)
                rest += [seen(bucket) for bucket in islice(mixture, (240 - stop * 24) // world)]
        assert sorted(rest) == one[stop * 24 :]


def test_invalid_mixtures_and_states_of_other_mixtures_are_refused(
    datasets: list[Path], run: Run, tmp_path: Path
) -> None:
    with Mixture([(datasets[0], 1), (datasets[1], 1)]) as mixture:
        state = mixture.state_dict()
    others: list[list[tuple[Any, Any]]] = [
        [(datasets[0], 2), (datasets[1], 1)],
        [(datasets[1], 1), (datasets[0], 1)],
        [(datasets[0], 1)],
    ]
    for other in others:
        with Mixture(other) as mixture, pytest.raises(StateError, match="another dataset"):
            mixture.load_state_dict(state)
    (tmp_path / "x.fasta").write_text(">a\nMKV\n")
    assert (
        run(
            "preprocess",
            tmp_path / "x.fasta",
            "--out",
            tmp_path / "wide",
            "--capacity",
            "1024",
            "--split",
            "train=1",
        ).returncode
        == 0
    )
    with pytest.raises(ValueError, match=r"wide has capacity 1024, .* has 256"):
        Mixture([(datasets[0], 1), (tmp_path / "wide", 1)])
    with pytest.raises(DatasetError, match="nowhere"):
        Mixture([(datasets[0], 1), (tmp_path / "nowhere", 1)])
    with pytest.raises(ValueError, match=r"these 2 datasets need [\d,]+ bytes"):
        Mixture(
            [(f"troubled://{datasets[0]}", 1), (f"troubled://{datasets[1]}", 1)],
            cache_dir=tmp_path / "cache",
            cache_bytes=10,
        )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (((10, (1,)),), "has 1 weights for 2 datasets"),
        (((10, (1, 0)),), "weight 0 of .* is not above 0"),
        (((0, (1, 1)),), "expected a position after 0"),
        (((10, (1, 1)), (10, (1, 2))), "expected a position after 10"),
    ],
)
def test_invalid_changes_of_weights_are_refused(
    datasets: list[Path], changes: tuple[tuple[int, tuple[int, ...]], ...], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        Mixture([(datasets[0], 1), (datasets[1], 1)], changes=changes)
