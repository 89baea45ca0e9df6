"""A value that is not allowed gives a one-line error. Help texts show no empty defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.processes.command_line import Run, preprocess


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("preprocess x --out d --capacity 4k", "--capacity is '4k', expected a whole number"),
        ("preprocess x --out d --workers two", "--workers is 'two', expected a whole number"),
        (
            "preprocess x --out d --exclude-identity 5%",
            "--exclude-identity is '5%', expected a number, such as 0.3",
        ),
        ("plan-tasks x --out d --seed=1.5", "--seed is '1.5', expected a whole number"),
        ("stats x --capacity 4k", "--capacity is '4k', expected a whole number"),
        ("plan --data d --tokens 5G", "--tokens is '5G', expected a whole number"),
        ("plan --data d --tokens 1.0005K", "--tokens is '1.0005K', expected a whole number"),
        ("plan --data d --tokens 1.5e0", "--tokens is '1.5e0', expected a whole number"),
        (
            "plan --data d --tokens many",
            "--tokens is 'many', expected a whole number, such as 100B",
        ),
        ("bench-reader d --seconds -1", "--seconds is -1.0, expected more than 0"),
        ("plan --data d --tokens -1", "--tokens is -1, expected at least 0"),
        ("bench-reader d --rank 8 --world-size 8", "--rank is 8, expected at least 0, up to 7"),
        ("bench-reader d --split vaild", "--split is 'vaild', expected train, valid or test"),
        ("bench-reader d --cache-dir s3://a/b", "--cache-dir is s3://a/b, a URL: the cache must"),
        ("inspect d --split vaild", "--split is 'vaild', expected train, valid or test"),
        ("bench-reader d --seconds nan", "--seconds is nan, expected more than 0"),
        (
            "run-task d --index 0 --stage verify",
            "--stage is 'verify', expected map, link, draw or reduce",
        ),
        ("preprocess x --out d --on-invalid=none", "--on-invalid is 'none', expected unk, skip"),
        ("preprocess x --out d --packer magic", "--packer is 'magic', expected balanced, best-fit"),
        ("stats x --long cut", "--long is 'cut', expected truncate, crop, split or drop"),
        ("inspect d --bucket -1", "--bucket is -1, expected at least 0"),
        ("verify d --workers -1", "--workers is -1, expected at least 1"),
        ("stats x --read-tokens", "--read-tokens reads the shards of a dataset, but no input"),
        ("preprocess x", "--out is missing: add --out DATASET"),
        ("plan-tasks x --variants 2", "--out is missing: add --out DATASET"),
        ("inspect d --bucket first", "--bucket is 'first', expected a whole number"),
    ],
)
def test_a_value_that_is_not_allowed_gives_a_one_line_error_that_names_the_option(
    run: Run, words: str, said: str
) -> None:
    done = run(*words.split())
    assert done.returncode == 2
    assert done.stderr.startswith(f"thdpack: {said}")
    assert done.stderr.count("\n") == 1


def test_a_number_of_tokens_may_have_an_exponent_or_a_unit(
    run: Run, sample: Path, tmp_path: Path
) -> None:
    dataset = preprocess(sample, tmp_path / "sample")
    plans = [
        run("plan", "--data", dataset, "--tokens", tokens).stdout
        for tokens in ("1.5e11", "150_000_000_000", "150B", "0.15t")
    ]
    assert "150,000,000,000" in plans[0]
    assert len(set(plans)) == 1
    assert not re.search(r"\d%", plans[0])


@pytest.mark.parametrize(
    "command",
    ["preprocess", "plan-tasks", "run-task", "commit", "verify", "inspect", "stats", "card"],
)
def test_the_help_shows_neither_an_empty_default_nor_the_word_none(run: Run, command: str) -> None:
    text = " ".join(run(command, "--help").stdout.replace("│", " ").split())
    assert "(default: )" not in text
    assert "None" not in text


def test_an_optional_number_may_be_given_as_none(run: Run) -> None:
    done = run("preprocess", "--out", "d", "--workers", "None", "--max-seqs", "None")
    assert "no input given" in done.stderr
