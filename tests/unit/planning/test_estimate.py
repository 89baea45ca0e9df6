"""The estimate of memory and time agrees with measured steps, and each option changes the
estimate in the right direction.

Held-out settings were not used to fit the estimate.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.training.fit_estimate import MEASURED, setting_of
from pipeline.planning.choices import choose_reshard
from pipeline.planning.estimate import Setting, memory, seconds
from schemas.models import ESM2_MODELS
from trainer.start.fit import check_memory

ROWS = json.loads(MEASURED.read_text())
SETTING = Setting(
    model=ESM2_MODELS["esm2-650m"],
    tokens=16384,
    real_tokens=16000.0,
    squares=8e6,
    max_seqlen=1024,
    fp8=False,
)


def total(setting: Setting) -> float:
    return sum(memory(setting).values())


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if not row["fit"]],
    ids=lambda row: "-".join(str(value) for value in row.values()),
)
def test_estimates_for_held_out_settings_are_within_10_percent_of_measurements(
    row: dict[str, float],
) -> None:
    setting = setting_of(row)
    assert 1e3 * seconds(setting) == pytest.approx(row["ms"], rel=0.1)
    assert total(setting) / 2**30 == pytest.approx(row["gib"], rel=0.1)


def test_there_are_held_out_settings_of_each_kind() -> None:
    held = [row for row in ROWS if not row["fit"]]
    assert {row["preset"] for row in held} >= {"esm2-150m", "esm2-650m", "esm2-3b", "esm2-15b"}
    assert {row.get("ranks", 1) for row in held} == {1, 2, 4}
    assert {row.get("recompute", "none") for row in held} == {"none", "selective", "full"}


def test_each_option_changes_the_estimated_time_and_memory_in_the_right_direction() -> None:
    many = replace(SETTING, ranks=4, shards=4)
    for setting in (SETTING, many):
        assert seconds(replace(setting, micro_batches=4)) > 3 * seconds(setting)
        assert seconds(replace(setting, squares=1e8)) > seconds(setting)
        assert total(replace(setting, tokens=32768)) > total(setting)
        assert (
            total(replace(setting, recompute="full"))
            < total(replace(setting, recompute="selective"))
            < total(setting)
        )
        assert (
            seconds(replace(setting, recompute="full"))
            > seconds(replace(setting, recompute="selective"))
            > seconds(setting)
        )
    assert total(many) < total(SETTING)
    assert total(replace(many, context_parallel=2)) < total(many)
    assert total(replace(many, shards=2)) > total(many)
    assert many.step_tokens == 4 * SETTING.step_tokens
    assert replace(many, context_parallel=4).step_tokens == SETTING.step_tokens


def test_the_error_for_a_run_that_does_not_fit_names_options_to_change() -> None:
    large = replace(SETTING, model=ESM2_MODELS["esm2-15b"])
    assert check_memory(SETTING, available=150e9).startswith("about 30 of 140 GiB")
    with pytest.raises(ValueError, match=r"masters and Adam.*use more GPUs"):
        check_memory(large, available=150e9)
    with pytest.raises(ValueError, match="for activations: use --recompute full"):
        check_memory(replace(SETTING, tokens=16 * 16384), available=150e9)
    with pytest.raises(ValueError, match=r"gathered.*use --(shard full|reshard layer)"):
        check_memory(
            replace(large, ranks=64, shards=64, micro_batches=2, tokens=1024), available=80e9
        )


def test_reshard_auto_gathers_parameters_once_a_step_if_memory_allows() -> None:
    many = replace(SETTING, ranks=4, shards=4, micro_batches=8)
    assert choose_reshard(many, available=150e9) == "step"
    assert choose_reshard(replace(many, model=ESM2_MODELS["esm2-15b"]), available=150e9) == "layer"
    three = replace(many, model=ESM2_MODELS["esm2-3b"], ranks=2, shards=2)
    assert choose_reshard(three, available=150e9) == "step"
    # with --reshard step, this run does not fit in memory
    assert choose_reshard(three, available=85e9) == "layer"
