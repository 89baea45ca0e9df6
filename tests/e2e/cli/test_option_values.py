"""A value that is not allowed gives a one-line error. Help texts show no empty defaults."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from pipeline.build.options import PreprocessOptions
from pipeline.cli.arguments import parsed
from schemas.text.option_checks import flag
from tests.helpers.processes.command_line import Run, preprocess


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("preprocess x --out d --capacity 4k", "--capacity is '4k', expected a whole number"),
        (
            "preprocess x --out d --capacity 16k",
            "--capacity is '16k', expected a whole number without a unit: write 16384 or 16000",
        ),
        (
            "preprocess x --out d --seed 2b",
            "--seed is '2b', expected a whole number without a unit",
        ),
        ("preprocess x --out d --capacity 16,38", "--capacity is '16,38', expected a whole number"),
        ("bench-reader d --seconds 0s", "--seconds is 0.0, expected more than 0"),
        ("bench-reader d --seconds 5x", "--seconds is '5x', expected a number, such as 5.0"),
        ("watch i --dataset d --settle 1y", "--settle is '1y', expected a number, such as 10.0"),
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
        ("bench-reader d --rank 8 --world-size 8", "--rank is 8, expected less than --world-size"),
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
        ("run-task d --index 0 --plan=", "--plan is empty: is a shell variable unset? If not, om"),
        ("run-task d --index=", "--index is empty: is a shell variable unset?\n"),
        ("run-task d --stage map --index 0 --array-size 0", "--array-size is 0, expected at least"),
        ("preprocess x --out d --executor ray --ray-address=", "--ray-address is empty: is a she"),
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
    assert done.stderr.startswith(f"thdpack {words.split()[0]}: {said}")
    assert done.stderr.count("\n") == 1


def test_a_number_of_tokens_may_have_an_exponent_or_a_unit(
    run: Run, sample: Path, tmp_path: Path
) -> None:
    dataset = preprocess(sample, tmp_path / "sample")
    plans = [
        run("plan", "--data", dataset, "--tokens", tokens).stdout
        for tokens in ("1.5e11", "150_000_000_000", "150,000,000,000", "150B", "0.15t")
    ]
    assert "150,000,000,000" in plans[0]
    assert len(set(plans)) == 1
    assert not re.search(r"\d%", plans[0])


def test_a_shell_command_may_begin_with_a_tilde() -> None:
    options = parsed(["watch", "i", "--dataset", "d", "--on-generation", "~/hook"])
    assert options.on_generation == "~/hook"


def test_a_time_of_watch_may_have_a_unit() -> None:
    words = ["watch", "i", "--dataset", "d", "--settle", "1.5m", "--batch-age", "90"]
    options = parsed(words)
    assert (options.settle, options.batch_age) == (90.0, 90.0)


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


def test_the_help_of_preprocess_shows_every_option_once_in_a_group(run: Run) -> None:
    shown = run("preprocess", "--help").stdout
    titles = re.findall(r"^╭─ (\w+) options ─", shown, re.MULTILINE)
    assert titles == ["output", "packing", "split", "input", "filter", "execution"]
    listed = re.findall(r"^│ (--[a-z-]+)", shown, re.MULTILINE)
    names = {flag(field.name) for field in fields(PreprocessOptions)} - {"--inputs"}
    assert sorted(listed) == sorted(names)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            "--capacity 512",
            2,
            "--max-seq-len 1024 does not fit --capacity 512: give --max-seq-len 512 or less, or a "
            "larger --capacity",
        ),
        (
            "--capacity -5",
            2,
            "--capacity is -5, expected at least 3: a sequence has <cls>, at least one residue, "
            "and <eos>",
        ),
        ("--memory 2", 2, "--memory 2 means 2 bytes, less than one task needs: give at least 256M"),
        ("--exclude /none/no.fa", 2, "--exclude /none/no.fa: no such file"),
    ],
)
def test_a_refused_value_names_its_option_and_a_remedy(
    run: Run, sample: Path, tmp_path: Path, words: str, code: int, said: str
) -> None:
    done = run("preprocess", sample, "--out", tmp_path / "out", *words.split())
    assert (done.returncode, done.stderr) == (code, f"thdpack preprocess: {said}\n")


@pytest.mark.parametrize("option", ["--html", "--json", "--csv"])
def test_stats_creates_no_parent_folder_of_its_files(
    run: Run, sample: Path, tmp_path: Path, option: str
) -> None:
    parent = tmp_path / "none"
    done = run("stats", sample, option, parent / "file")
    said = f"thdpack stats: {option} {parent}/file: there is no folder {parent}: create it first\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    assert not parent.exists()


def test_the_summary_of_an_append_suggests_no_option_that_append_lacks(
    run: Run, sample: Path, tmp_path: Path
) -> None:
    records = sample.read_text().split(">")[1:]
    (small := tmp_path / "small.fasta").write_text("".join(f">{each}" for each in records[:3]))
    (more := tmp_path / "more.fasta").write_text("".join(f">{each}" for each in records[3:6]))
    first = run("preprocess", small, "--out", tmp_path / "out")
    assert "--split train=" in first.stdout
    second = run("append", tmp_path / "out", more)
    assert (second.returncode, "valid  empty\n" in second.stdout) == (0, True)
    assert "--split" not in second.stdout
