"""Options of a training run that the command line accepts or refuses."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

import trainer
from trainer.config import parse


@pytest.mark.parametrize(
    "words",
    [
        ["--data", "a", "--seed", "1", "--seed", "2"],
        ["--data", "a", "--seed=1", "--seed", "2"],
        ["--data", "a", "--keep-last", "1", "--keep_last=2"],
    ],
)
def test_a_repeated_option_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["esm2-tiny", *words])
    assert left.value.code == 2
    assert " is given more than once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        (
            "--out",
            "use a local folder, and copy it to the store with a command such as `aws s3 syn",
        ),
        ("--init-from", "copy it to a local folder first, with a command such as `aws s3"),
        ("--cache-dir", "the cache must be a folder on a local disk"),
    ],
)
@pytest.mark.parametrize(
    "url",
    [
        "s3://key:secret@bucket/run",
        "s3:/key:secret@b/run",
        "file:///run",
        "simplecache::s3://b/run",
    ],
)
def test_a_url_is_not_accepted_as_a_local_folder(
    option: str, remedy: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["esm2-tiny", "--data", "d", option, url])
    assert left.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"train: {option} is " in said
    assert f"a URL: {remedy}" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "9"], "--epochs and --steps both set the length of the run: give only one"),
        (["--max-steps=9"], "--epochs and --steps both set the length of the run: give only one"),
        (["--reweight", "9=1,2"], "--reweight changes the length of an epoch: use --steps instead"),
    ],
)
def test_the_option_epochs_is_refused_with_steps_and_with_reweight(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["esm2-tiny", "--data", "d", "--epochs", "3", *words])
    assert left.value.code == 2
    assert said in capsys.readouterr().err
    for wrong in ("-1", "nan", "few"):
        with pytest.raises(SystemExit):
            parse(["esm2-tiny", "--data", "d", "--epochs", wrong])
        assert "--epochs is " in capsys.readouterr().err


def test_a_size_may_have_a_unit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["esm2-tiny", "--data", "d", "--cache-bytes"]
    assert parse([*words, "2G"]).data.cache_bytes == 2 << 30
    assert parse([*words, "1000"]).data.cache_bytes == 1_000
    with pytest.raises(SystemExit) as left:
        parse([*words, "lots"])
    assert left.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "--cache-bytes is 'lots', expected a size, such as 512M or 2G" in said


def test_the_tokens_of_a_step_may_have_a_unit() -> None:
    words = ["esm2-tiny", "--data", "d", "--buckets-per-step", "0", "--tokens-per-step"]
    assert parse([*words, "1.5M"]).data.tokens_per_step == 1_500_000


def test_numbers_of_steps_may_have_a_unit_or_commas() -> None:
    words = ["--steps", "2k", "--warmup-steps", "1e2", "--checkpoint-every", "1,000"]
    options = parse(["esm2-tiny", "--data", "d", *words, "--validate-every", "0.5K"])
    assert (options.optimizer.steps, options.optimizer.warmup_steps) == (2_000, 100)
    assert (options.output.checkpoint_every, options.output.validate_every) == (1_000, 500)


@pytest.mark.parametrize("option", ["--out", "--init-from"])
def test_an_empty_folder_name_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["esm2-tiny", "--data", "d", option, ""])
    assert left.value.code == 2
    said = f"thdpack train: {option} is empty: is a shell variable unset? If not, omit the option\n"
    assert capsys.readouterr().err == said


def test_a_path_may_contain_a_colon() -> None:
    assert parse(["esm2-tiny", "--data", "d", "--out", "runs/12:30"]).output.out == "runs/12:30"


def test_a_number_above_int64_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["esm2-tiny", "--data", "d", "--steps", "1" + 400 * "0"])
    assert left.value.code == 2
    assert "between -2^63 and 2^63" in capsys.readouterr().err


def test_options_are_parsed_and_kept_in_json() -> None:
    options = parse(
        [
            "esm2-15b",
            "--data",
            "d",
            "--schedule",
            "wsd",
            "--gelu",
            "tanh",
            "--recompute",
            "full",
            "--beta2",
            "0.95",
        ]
    )
    assert options.optimizer.learning_rate == 1.6e-4
    assert options.optimizer.weight_decay == 0.1
    assert options.data.tokens_per_step == 3_145_728
    assert json.loads(options.to_json())["optimizer"]["beta2"] == 0.95
    assert (options.optimizer.schedule, options.model.gelu, options.compute.recompute) == (
        "wsd",
        "tanh",
        "full",
    )


def test_a_missing_dataset_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["esm2-8m"])
    assert left.value.code == 2
    assert "--data is missing: add --data DATASET" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["esm2-8m", "--data", "d", "--steps", "5", "--warmup-steps", "9"],
            "--warmup-steps is 9, too long",
        ),
        (["esm2-8m", "--data", "d", "--steps", "0"], "train: --steps is 0, expected at least 1"),
        (["esm2-8m", "--data", "d", "--learning-rate", "-1"], "is -1.0, expected more than 0"),
        (["esm2-8m", "--data", "d", "--clip-norm", "nan"], "--clip-norm is nan, expected more"),
        (["esm2-8m", "--data", "d", "--lr", "inf"], "--lr is inf, expected more than 0 and finite"),
        (["esm2-8m", "--data", "d", "--wd", "-1"], "--wd is -1.0, expected at least 0 and finite"),
        (["esm2-8m", "--data", "d", "--beta1", "1"], "--beta1 is 1.0, expected at least 0 and bel"),
        (["esm2-8m", "--data", "d", "--beta2", "-1"], "--beta2 is -1.0, expected at least 0"),
        (["esm2-8m", "--data", "d", "--epsilon", "-1"], "--epsilon is -1.0, expected more than 0"),
        (["esm2-8m", "--data", "d", "--decay-until", "2"], "is 2.0, expected more than 0 and up"),
        (["esm2-8m", "--data", "d", "--layers", "0"], "--layers is 0, expected at least 1"),
        (["esm2-8m", "--data", "d", "--keep-last", "0"], "--keep-last is 0, expected at least 1"),
        (["esm2-8m", "--data", "d", "--batch-size", "4"], "use --tokens-per-step or"),
        (["esm2-8m", "--data", "d", "--lr", "1", "--learning-rate", "1"], "more than once"),
        (
            ["esm2-8m", "--data", "d", "--tokens-per-step", "5000", "--buckets-per-step", "3"],
            "--tokens-per-step and --buckets-per-step both set the batch: give only one",
        ),
        (["esm2-8m", "--data", "d", "--lerning-rate", "1"], "did you mean --learning-rate?"),
        (["esm2-8m", "--data", "d", "--precision", "fp8"], "mean fp8-delayed, fp8-current, fp8-"),
        (
            ["esm2-8m", "--data", "d", "--precision=block"],
            "--precision is 'block': did you mean fp8-",
        ),
        (["esm2-9m", "--data", "d"], "no preset esm2-9m: did you mean esm2-8m?"),
        (["esm2-8m", "--data", "d", "--output", "o"], "no option --output: use --out"),
        (["esm2-8m", "--data", "d", "--num_train_steps", "9"], "--num-train-steps: use --steps"),
        (["esm2-8m", "--data", "d", "num_train_steps=9"], "begin with two hyphens: use --steps"),
        (["esm2-8m", "data=d", "--steps", "9"], "begin with two hyphens: write --data d"),
        (["esm2-8m", "data/d", "--steps", "9"], "write an option before it: --data data/d"),
        (["esm2-8m", "-data", "d"], "no option -data: write --data, with two hyphens"),
        (["esm2_t33_650M_UR50D"], "no preset esm2_t33_650M_UR50D: its preset is esm2-650m"),
        (["facebook/esm2_t6_8M_UR50D"], "its preset is esm2-8m (--init-from FOLDER starts from"),
        (["--data", "d"], "a preset comes before --data: esm2-tiny"),
        ([], "PRESET is missing: name a model, which is one of esm2-tiny"),
    ],
)
def test_the_error_for_wrong_usage_gives_a_reason_or_remedy_and_does_not_mention_the_parser(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        parse(words)
    assert left.value.code == 2
    shown = " ".join("".join(capsys.readouterr()).replace("│", " ").split())
    assert said in shown
    assert "tyro" not in shown
    assert "python esm2" not in shown
    assert "Error parsing" not in shown


def test_flags_may_have_the_names_that_other_trainers_use() -> None:
    names = ["--data", "d", "--lr", "1e-3", "--wd", "0", "--max-steps", "9000", "--output-dir", "o"]
    options = parse(["esm2-8m", *names])
    assert (options.optimizer.learning_rate, options.optimizer.weight_decay) == (1e-3, 0)
    assert (options.optimizer.steps, options.output.out) == (9000, "o")


def test_without_torch_the_trainer_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    importlib.reload(trainer)  # an import alone prints nothing and does not fail
    monkeypatch.setattr(sys, "argv", ["-m"])  # sys.argv while `python -m` imports the package
    with pytest.raises(SystemExit, match=r"needs torch: .*`make train` or pip install -e"):
        importlib.reload(trainer)


def test_with_muon_the_default_learning_rate_is_four_times_that_of_the_preset() -> None:
    adamw = parse(["esm2-35m", "--data", "d"]).optimizer.learning_rate
    muon = ["esm2-35m", "--data", "d", "--optimizer", "muon"]
    assert parse(muon).optimizer.learning_rate == 4 * adamw
    for flag in ("--lr", "--learning-rate"):
        assert parse([*muon, flag, "3e-3"]).optimizer.learning_rate == 3e-3
