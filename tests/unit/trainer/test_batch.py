"""Defaults of a run: batch, number of steps, and number of epochs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from schemas.text.phrases import plural
from trainer.batch import choose_batch, choose_steps
from trainer.config import DataOptions, OptimizerOptions, OutputOptions, parse
from trainer.distributed.topology import single_process
from trainer.start.resume_options import resumed
from trainer.start.run_description import notes

PUBLISHED = 2_097_152
DEFAULT = DataOptions(tokens_per_step=PUBLISHED, tokens_given=False)


def manifest(buckets: int) -> Any:
    return SimpleNamespace(capacity=16_384, splits={"train": SimpleNamespace(buckets=buckets)})


@pytest.mark.parametrize(
    ("device", "ranks", "epoch", "expected"),
    [
        ("cuda", 8, 1_000_000, 128),
        ("cuda", 8, 1_280, 128),
        ("cuda", 8, 1_279, 64),
        ("cuda", 3, 1_279, 96),
        ("cuda", 1, 47, 4),
        ("cuda", 8, 47, 8),
        ("cuda", 1, 5, 1),
        ("cpu", 1, 1_000_000, 2),
        ("cpu", 1, 5, 1),
    ],
)
def test_the_default_batch_is_the_published_one_except_for_small_data_or_a_cpu(
    device: str, ranks: int, epoch: int, expected: int
) -> None:
    topology = replace(single_process(torch.device(device)), world_size=ranks)
    found = choose_batch(DEFAULT, manifest(epoch), topology)
    assert found.data.buckets_per_step == expected
    if expected == 128:
        assert (found.note, found.data.tokens_per_step) == ("", PUBLISHED)
    else:
        assert found.data.tokens_per_step == expected * 16_384
        batch = f"{plural(expected, 'bucket')} ({expected * 16_384:,} tokens)"
        assert f"using {batch} a step" in found.note
        assert "--tokens-per-step overrides" in found.note
    given = choose_batch(replace(DEFAULT, tokens_given=True), manifest(epoch), topology)
    assert (given.note == "") == (128 % ranks == 0 and epoch >= 128)
    assert given.data.tokens_per_step == PUBLISHED
    assert given.data.buckets_per_step == pytest.approx(128, abs=ranks / 2)


@pytest.mark.parametrize(
    ("tokens", "ranks", "said"),
    [
        (9_000, 1, "9,000 is rounded to 16,384: a step is 1 × 16,384 tokens"),
        (33_000, 4, "33,000 is rounded to 65,536: a step is 4 × 16,384 tokens"),
        (40_000, 1, "40,000 is rounded to 32,768: a step is 2 × 16,384 tokens"),
        (32_768, 1, ""),
    ],
)
def test_rounding_of_the_batch_is_announced(tokens: int, ranks: int, said: str) -> None:
    given = replace(DEFAULT, tokens_per_step=tokens, tokens_given=True)
    topology = replace(single_process(torch.device("cpu")), world_size=ranks)
    note = choose_batch(given, manifest(1_000), topology).note
    assert said in note
    assert bool(note) == bool(said)


@pytest.mark.parametrize(
    ("buckets", "said"),
    [
        (500, "a step of 500 buckets (8,192,000 tokens) is 5.68 epochs of this dataset: use a sm"),
        (89, "a step of 89 buckets (1,458,176 tokens) is 1.01 epochs of this dataset: use a sma"),
        (88, ""),
    ],
)
def test_a_chosen_step_of_more_than_an_epoch_is_announced(buckets: int, said: str) -> None:
    topology = single_process(torch.device("cpu"))
    for option, given in (
        ("--buckets-per-step", replace(DEFAULT, buckets_per_step=buckets)),
        (
            "--tokens-per-step",
            replace(DEFAULT, tokens_per_step=buckets * 16_384, tokens_given=True),
        ),
    ):
        note = choose_batch(given, manifest(88), topology).note
        assert note.startswith(f"warning: {said}" if said else "")
        assert note.endswith(f"use a smaller {option}, or omit it" if said else "")
        assert bool(note) == bool(said)


@pytest.mark.parametrize(("tokens", "ranks"), [(100, 1), (8_192, 1), (32_768, 4)])
def test_a_batch_of_at_most_half_of_the_smallest_step_is_refused(tokens: int, ranks: int) -> None:
    given = replace(DEFAULT, tokens_per_step=tokens, tokens_given=True)
    topology = replace(single_process(torch.device("cpu")), world_size=ranks)
    with pytest.raises(ValueError, match=f"expected at least {16_384 * ranks:,}"):
        choose_batch(given, manifest(1_000), topology)


def test_a_resumed_run_keeps_the_batch_that_was_chosen_for_it() -> None:
    now = parse(["esm2-8m", "--data", "d"])
    chosen = choose_batch(now.data, manifest(47), single_process(torch.device("cuda"))).data
    before = replace(now, data=chosen)
    assert resumed(now, before).data == chosen
    with pytest.raises(ValueError, match="which --tokens-per-step 2097152 cannot change"):
        resumed(parse(["esm2-8m", "--data", "d", "--tokens-per-step", "2097152"]), before)


def test_the_error_for_a_resume_with_another_model_gives_the_preset_or_flags_of_the_run() -> None:
    tiny = parse(["esm2-tiny", "--data", "d"])
    with pytest.raises(ValueError, match=r"another model, esm2-tiny \(--layers 2, not 6; --hidden"):
        resumed(parse(["esm2-8m", "--data", "d"]), tiny)
    shaped = parse(["esm2-tiny", "--data", "d", "--layers", "3"])
    flags = "--layers 3 --hidden-size 64 --heads 4 --ffn-size 256"
    with pytest.raises(ValueError, match=rf"another model, {flags} \(--layers 3, not 2\): give"):
        resumed(tiny, shaped)


@pytest.mark.parametrize(
    ("buckets", "merged", "ranks", "said"),
    [
        (
            4,
            1,
            3,
            "4 buckets per step do not divide among 3 ranks × 1 bucket per .*: use 1, 2 or 4 ranks",
        ),
        (
            1,
            1,
            2,
            "1 bucket per step does not divide among 2 ranks × 1 bucket per .*: use 1 rank,",
        ),
        (128, 4, 3, "divide among 3 ranks × 4 buckets per micro-batch: use 1, 2, 4, 8, 16 or 32 "),
        (
            6,
            4,
            1,
            "6 buckets per step do not divide among 1 rank × 4 buckets per micro-batch: change",
        ),
    ],
)
def test_if_ranks_do_not_divide_the_buckets_of_a_step_the_error_says_what_to_change(
    buckets: int, merged: int, ranks: int, said: str
) -> None:
    given = replace(DEFAULT, buckets_per_step=buckets, buckets_per_micro_batch=merged)
    topology = replace(single_process(torch.device("cpu")), world_size=ranks)
    with pytest.raises(ValueError, match=said) as refused:
        choose_batch(given, manifest(1_000), topology)
    assert "--buckets-per-micro-batch" in str(refused.value)


def test_by_default_a_run_is_at_most_100_epochs_and_a_resume_keeps_its_number_of_steps() -> None:
    asked = parse(["esm2-8m", "--data", "d"])
    batched = replace(asked, data=replace(asked.data, buckets_per_step=2))
    chosen, reason = choose_steps(batched, manifest(24))
    assert chosen.optimizer.steps == 1_200
    assert chosen.optimizer.warmup == 120
    assert reason == (
        "steps: 1,200, which is 100 epochs of the data; the preset's 500,000 would be 41,667 "
        "epochs; --steps overrides"
    )
    assert resumed(asked, chosen).optimizer.steps == 1_200
    longer = parse(["esm2-8m", "--data", "d", "--max-steps", "3000"])
    assert resumed(longer, chosen).optimizer.steps == 3_000


def test_by_default_a_run_from_published_weights_is_at_most_20_epochs() -> None:
    asked = parse(["esm2-8m", "--data", "d", "--init-from", "f", "--buckets-per-step", "2"])
    chosen, reason = choose_steps(asked, manifest(24))
    assert chosen.optimizer.steps == 240
    assert reason.startswith("steps: 240, which is 20 epochs of the data; the preset's 500,000")


@pytest.mark.parametrize(
    ("epochs", "epoch", "steps", "said"),
    [
        ("20", 88, 880, "steps: 880, which is 20 epochs of the data (--epochs 20)"),
        ("0.5", 88, 22, "steps: 22, which is 0.5 epochs of the data (--epochs 0.5)"),
        ("3", 5, 8, "steps: 8, which is 3.2 epochs of the data (--epochs 3)"),
        ("1.1", 200, 110, "steps: 110, which is 1.1 epochs of the data (--epochs 1.1)"),
        ("0.001", 88, 1, "steps: 1, which is 0.023 epochs of the data (--epochs 0.001)"),
    ],
)
def test_the_option_epochs_sets_the_fewest_steps_that_read_so_many_epochs(
    epochs: str, epoch: int, steps: int, said: str
) -> None:
    asked = parse(["esm2-8m", "--data", "d", "--epochs", epochs, "--buckets-per-step", "2"])
    chosen, reason = choose_steps(asked, manifest(epoch))
    assert (chosen.optimizer.steps, chosen.optimizer.epochs, reason) == (steps, 0.0, said)
    assert chosen.optimizer.warmup == steps // 10
    assert choose_steps(resumed(asked, chosen), manifest(epoch)) == (
        replace(chosen, data=resumed(asked, chosen).data),
        said,
    )


def test_a_warm_up_is_compared_with_the_steps_that_the_option_epochs_gives() -> None:
    words = ["--data", "d", "--buckets-per-step", "1", "--warmup-steps", "150", "--epochs"]
    assert choose_steps(parse(["esm2-tiny", *words, "20"]), manifest(10))[0].optimizer.steps == 200
    with pytest.raises(ValueError, match="--warmup-steps is 150, too long for a schedule of 100"):
        choose_steps(parse(["esm2-tiny", *words, "10"]), manifest(10))


def test_steps_that_the_user_gives_are_kept() -> None:
    for flag in ("--steps", "--max-steps"):
        asked = parse(["esm2-8m", "--data", "d", flag, "9000000", "--buckets-per-step", "2"])
        assert choose_steps(asked, manifest(24)) == (asked, "")


def test_with_the_option_reweight_a_run_has_as_many_steps_as_its_preset() -> None:
    words = ["--data", "a=1", "--data", "b=1", "--reweight", "9=1,2", "--buckets-per-step", "2"]
    chosen, reason = choose_steps(parse(["esm2-8m", *words]), manifest(24))
    assert chosen.optimizer.steps == 500_000
    assert "because --reweight changes the length of an epoch" in reason


def test_many_epochs_are_announced_with_a_remedy() -> None:
    run: Any = SimpleNamespace(
        notes=[],
        evaluations=[],
        before=None,
        step=0,
        epoch_buckets=47,
        options=parse(["esm2-8m", "--data", "d"]),
        readers=SimpleNamespace(generations=[]),
    )
    run.options = replace(run.options, data=replace(DEFAULT, buckets_per_step=4))
    [said] = notes(run)
    assert "500,000 steps are 42,553 epochs of this dataset" in said
    assert "--steps 235 is 20 epochs, and --init-from FOLDER" in said
    run.options = replace(run.options, output=OutputOptions(init_from="esm2"))
    assert "--init-from" not in notes(run)[0]
    run.options = replace(run.options, optimizer=OptimizerOptions(steps=235))
    assert notes(run) == []
