"""Options of a training run: what the command line accepts and what it refuses."""

from __future__ import annotations

import json

import pytest

from trainer.config import parse


@pytest.mark.parametrize(
    "words",
    [
        ["--data", "a", "--data", "b"],
        ["--data=a", "--data", "b"],
        ["--data", "a", "--keep-last", "1", "--keep_last=2"],
    ],
)
def test_a_repeated_option_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["esm2-tiny", *words])
    assert left.value.code == 2
    assert " is given more than once" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--out", "--cache-dir", "--init-from"])
@pytest.mark.parametrize(
    "url", ["s3://key:secret@bucket/run", "file:///run", "simplecache::s3://bucket/run"]
)
def test_a_url_is_not_accepted_as_a_local_folder(
    option: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["esm2-tiny", "--data", "d", option, url])
    assert left.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "a URL: use a folder of a local or mounted file system" in said
    assert "secret" not in said


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
