"""`--split`: a hash of each record's first residues decides its split.

guarantees/test_same_bytes.py and test_kill.py check that a build with three splits has the same
bytes with any number of workers and after kills.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xxhash

from schemas.manifest import Manifest
from schemas.shard import SPLITS
from schemas.vocabulary import ESM2
from tests.helpers.data.corpus import (
    as_read,
    fasta,
    made_records,
    read_buckets,
    read_manifest,
    read_records,
    sequences_in,
)
from tests.helpers.oracles.slow_split import split_of_hash
from tests.helpers.processes.command_line import Run, use_few_small_tasks

THREE = "train=0.6,valid=0.25,test=0.15"
MOST = 254
BuildHere = Callable[..., Manifest]


@pytest.fixture(scope="module")
def records() -> list[tuple[str, str]]:
    return made_records(400)


@pytest.fixture
def corpus(tmp_path: Path, records: list[tuple[str, str]]) -> Path:
    path = tmp_path / "made.fasta"
    path.write_bytes(fasta(records))
    return path


def expected_split(residues: str, split: str) -> str:
    """Return the split of a record, from the hash of its first MOST tokens."""
    unknown = ESM2.tokens.index("<unk>")
    letters = as_read(residues)[:MOST]
    tokens = bytes(unknown if c == "?" else ESM2.tokens.index(c) for c in letters)
    return split_of_hash(xxhash.xxh3_128_digest(tokens), split)


def check_splits(out: Path, records: list[tuple[str, str]], split: str) -> None:
    """Check the split of each record in records/ and in the buckets."""
    rows = read_records(out)
    assert len(rows) == len(records)
    for row, (_, residues) in zip(rows, records, strict=True):
        kept = row["status"] == "kept"
        assert row["split"] == (expected_split(residues, split) if kept else None)
    for bucket in read_buckets(out):
        assert bucket["shard"].startswith(f"{bucket['split']}/")
        assert {rows[i]["split"] for i, _, _ in sequences_in(bucket)} == {bucket["split"]}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"split": THREE},
        {"split": THREE, "long": "split"},
        {"split": "train=0.9,test=0.1", "long": "drop"},
        {"split": "valid=0.5,test=0.5", "dedup": "none"},
        {"split": "test=1", "dedup": "cropped"},
    ],
    ids=["truncate", "split", "drop", "no-train", "only-test"],
)
def test_every_kept_record_is_in_the_split_that_its_hash_decides(
    build_here: BuildHere,
    run: Run,
    tmp_path: Path,
    corpus: Path,
    records: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    large: bool,
) -> None:
    """A large partition is read in several runs. A run is a group of consecutive records."""
    use_few_small_tasks(monkeypatch)
    if large:
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 10_000)
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 9_000)
    out = tmp_path / "out"
    build_here(corpus, out, capacity=1024, max_seq_len=MOST + 2, **options)
    check_splits(out, records, options["split"])
    assert {bucket["split"] for bucket in read_buckets(out)} == {
        part.split("=")[0] for part in options["split"].split(",")
    }
    assert list(read_manifest(out).shards) == list(SPLITS)
    assert run("verify", out, "--deep").returncode == 0


def test_the_same_shares_in_another_notation_count_as_the_same_option(
    build_here: BuildHere, run: Run, tmp_path: Path, corpus: Path
) -> None:
    build_here(corpus, tmp_path / "out")
    assert read_manifest(tmp_path / "out").options["split"] == "train=0.99,valid=0.01"
    for text in ("valid=0.01,train=0.99", "valid=1e-2", " train = .990 , valid=0.010, test=0 "):
        done = run("preprocess", corpus, "--out", tmp_path / "out", "--split", text)
        assert done.returncode == 0, done.stderr
        assert "nothing to do" in done.stdout
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--split", "valid=0.02")
    assert done.returncode == 2
    assert "--split train=0.99,valid=0.01 → train=0.98,valid=0.02" in done.stderr


def test_adding_a_test_split_takes_no_record_from_valid(
    build_here: BuildHere, tmp_path: Path, corpus: Path
) -> None:
    found = {}
    for split in ("train=0.8,valid=0.2", "train=0.5,valid=0.2,test=0.3"):
        build_here(corpus, tmp_path / split, split=split)
        found[split] = {
            r["ordinal"] for r in read_records(tmp_path / split) if r["split"] == "valid"
        }
    two, three = found.values()
    assert two == three
    assert two


def test_inspect_stats_and_bench_reader_accept_the_test_split(
    build_here: BuildHere, run: Run, tmp_path: Path, corpus: Path
) -> None:
    out = tmp_path / "out"
    build_here(corpus, out, split=THREE, capacity=1024, max_seq_len=256)
    test = read_manifest(out).splits["test"]
    summary = run("inspect", out).stdout
    assert f"test  {test.buckets} buckets, {test.sequences} sequences" in summary
    assert (
        "bucket 0 of test: row 0 of test/"
        in run("inspect", out, "--split", "test", "--bucket", "0").stdout
    )
    report = json.loads(run("stats", out, "--json").stdout)
    assert [(split["name"], split["buckets"] > 0) for split in report["splits"]] == [
        ("train", True),
        ("valid", True),
        ("test", True),
    ]
    assert run("stats", out, "--read-tokens").returncode == 0
    build_here(corpus, tmp_path / "two")
    done = run("inspect", tmp_path / "two", "--split", "test", "--bucket", "0")
    assert done.stderr == "thdpack inspect: no bucket 0 in test: this split is empty\n"
    done = run("bench-reader", out, "--split", "test", "--seconds", "0.01")
    assert done.returncode == 0, done.stderr


def test_inspect_and_stats_do_not_show_a_split_without_a_share(
    build_here: BuildHere, run: Run, tmp_path: Path, corpus: Path
) -> None:
    build_here(corpus, tmp_path / "out")
    for words in (("inspect", tmp_path / "out"), ("stats", tmp_path / "out")):
        shown = run(*words).stdout
        assert re.search(r"\bvalid\b", shown)
        assert not re.search(r"\btest\b", shown.replace(str(tmp_path), ""))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train", "--split gives train the share '', expected a number from 0 to 1, such as 0.01"),
        ("val=0.1", "such as valid=0.01. Did you mean valid?"),
        ("train=90,valid=10", "expected a number from 0 to 1: for 90 %, write 0.9"),
        ("valid=5%", "--split gives valid the share '5%', expected a number from 0 to 1"),
        ("valid=-0.1", "--split gives valid the share '-0.1', expected a number from 0 to 1"),
        ("test=nan", "--split gives test the share 'nan', expected a number from 0 to 1"),
        ("test=inf", "--split gives test the share 'inf', expected a number from 0 to 1"),
        ("valid=0.0123456789012345", "expected at most 15 decimals"),
        (
            "0.01",
            "--split has '0.01', expected train, valid or test with a share, such as valid=0.01",
        ),
        ("valid:0.05", "such as valid=0.01. Did you mean valid=0.05?"),
        ("dev=0.1", "--split has 'dev=0.1', expected train, valid or test with a share"),
        ("valid=0.1,", "--split has '', expected train, valid or test with a share"),
        ("valid=0.1,valid=0.2", "which names valid twice: remove one"),
        ("train=0.9,valid=0.2", "whose shares add up to 1.1, expected 1"),
        ("train=0.9,valid=0.05", "whose shares add up to 0.95, expected 1"),
        ("valid=0.9,test=0.2", "whose shares add up to 1.1, expected 1"),
    ],
)
def test_a_wrong_value_of_split_prints_one_error_line(run: Run, text: str, said: str) -> None:
    done = run("preprocess", "x", "--out", "d", "--split", text)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--split", "train=0.9", "valid=0.1", "--out", "d"),
        ("--split=train=0.9,", "valid=0.1", "--out", "d"),
        ("--out", "d", "--split", "train=0.9", ",valid=0.1"),
    ],
)
def test_a_blank_between_shares_is_refused(run: Run, words: tuple[str, ...]) -> None:
    done = run("preprocess", "x", *words)
    said = "--split has blanks between its shares: write commas, as in --split train=0.9,valid=0.1"
    assert (done.returncode, done.stderr) == (2, f"thdpack preprocess: {said}\n")


@pytest.mark.parametrize("option", ["--valid-fraction", "--val-fraction", "--test-fraction"])
def test_the_error_for_an_old_or_foreign_option_suggests_the_option_split(
    run: Run, option: str
) -> None:
    done = run("preprocess", "x", "--out", "d", option, "0.1")
    assert done.returncode == 2
    assert f"no option {option}: use --split train=0.9" in done.stderr
