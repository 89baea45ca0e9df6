"""Defaults: sharding of a model, number of buckets in a micro-batch, and number of steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.planning.choices import (
    GAIN,
    MOST_DEFAULT_EPOCHS,
    ROOM_OF_MERGED,
    choose_buckets,
    choose_shard,
    default_steps,
)
from pipeline.planning.estimate import ROOM, Setting, Shard, memory, seconds
from schemas.models import ESM2_MODELS

H200, H100 = 139.8 * 2**30, 79.2 * 2**30


def setting(model: str, *, ranks: int = 1, micro_batches: int = 128) -> Setting:
    return Setting(
        model=ESM2_MODELS[model],
        tokens=16384,
        real_tokens=16300.0,
        squares=8e6,
        max_seqlen=1024,
        fp8=False,
        micro_batches=micro_batches,
        ranks=ranks,
        shard="none",
        shards=ranks,
        captured=True,
    )


def size(each: Setting) -> float:
    return sum(memory(each).values())


@pytest.mark.parametrize(
    ("model", "gpu", "expected"),
    [
        ("esm2-8m", H100, "none"),
        ("esm2-650m", H100, "none"),
        ("esm2-3b", H200, "none"),
        ("esm2-3b", H100, "optimizer"),
        ("esm2-15b", H200, "full"),
        ("esm2-15b", H100, "full"),
    ],
)
def test_the_option_shard_auto_divides_the_model_only_as_far_as_memory_requires(
    model: str, gpu: float, expected: Shard
) -> None:
    asked = setting(model, ranks=4, micro_batches=32)
    assert choose_shard(asked, available=gpu) == expected
    if expected != "full":
        assert size(replace(asked, shard=expected)) <= ROOM * gpu
    if expected != "none":
        assert size(replace(asked, shard="none")) > ROOM * gpu


@pytest.mark.parametrize("model", list(ESM2_MODELS))
@pytest.mark.parametrize("micro_batches", [1, 6, 7, 32, 128])
@pytest.mark.parametrize("gpu", [H100, H200])
def test_the_chosen_number_of_merged_buckets_fits_in_memory_and_is_nearly_the_fastest(
    model: str, micro_batches: int, gpu: float
) -> None:
    asked = setting(model, micro_batches=micro_batches)
    found = choose_buckets(asked, available=gpu)
    assert micro_batches % found == 0
    if found > 1:
        assert size(asked.merged(found)) <= ROOM_OF_MERGED * gpu
        assert seconds(asked.merged(found)) < seconds(asked) / (1 + GAIN)
    for other in range(1, 17):
        if micro_batches % other == 0 and size(asked.merged(other)) <= ROOM_OF_MERGED * gpu:
            assert seconds(asked.merged(found)) <= (1 + GAIN) * seconds(asked.merged(other))


def test_small_models_merge_more_buckets_than_large_ones() -> None:
    numbers = [choose_buckets(setting(model), available=H200) for model in ESM2_MODELS]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] >= 8
    assert numbers[-1] == 1


def test_merging_buckets_keeps_the_number_of_tokens_of_a_step() -> None:
    asked = setting("esm2-8m", ranks=4, micro_batches=32)
    assert asked.merged(8).step_tokens == asked.step_tokens
    assert asked.merged(8).micro_batches == 4


@given(st.integers(1, 10**6), st.integers(1, 10**7), st.integers(1, 1_000))
def test_default_steps_are_those_of_the_preset_or_the_fewest_that_reach_100_epochs(
    preset: int, epoch: int, batch: int
) -> None:
    steps = default_steps(preset, epoch=epoch, batch=batch).steps
    assert 1 <= steps <= preset
    assert (steps - 1) * batch < MOST_DEFAULT_EPOCHS * epoch
    assert steps == preset or steps * batch >= MOST_DEFAULT_EPOCHS * epoch


@pytest.mark.parametrize(
    ("preset", "epoch", "batch", "reason"),
    [
        (
            500_000,
            24,
            1,
            "steps: 2,400, which is 100 epochs of the data; the preset's 500,000 would be 20,833 "
            "epochs",
        ),
        (
            500_000,
            1,
            8,
            "steps: 13, which is 104 epochs of the data; the preset's 500,000 would be 4,000,000 "
            "epochs",
        ),
        (
            500_000,
            1_000_000,
            128,
            "steps: 500,000, which is 64 epochs of the data, as in the preset",
        ),
        (100, 24, 1, "steps: 100, which is 4.2 epochs of the data, as in the preset"),
        (1, 4, 4, "steps: 1, which is 1 epoch of the data, as in the preset"),
    ],
)
def test_the_reason_for_the_default_steps_states_the_number_of_epochs(
    preset: int, epoch: int, batch: int, reason: str
) -> None:
    assert default_steps(preset, epoch=epoch, batch=batch).reason == reason
