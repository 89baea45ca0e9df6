"""Lines of a build's summary: empty splits, counts of one, gap characters, skipped files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from schemas.shard import SPLITS
from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import Run


@pytest.mark.parametrize(
    ("records", "split", "said"),
    [
        (
            100,
            "valid=0.001",
            {
                "valid": "empty: --split train=0.999,valid=0.001 set none of 100 records aside for "
                "valid; --split train=0.8,valid=0.2 would set aside about 20"
            },
        ),
        (
            100,
            "valid=0.3,test=0.00001",
            {
                "test": "empty: --split train=0.69999,valid=0.3,test=0.00001 set none of 100 "
                "records aside for test; --split train=0.5,valid=0.3,test=0.2 would set aside "
                "about 20"
            },
        ),
        (
            100,
            "valid=0.85,test=0.00001",
            {
                "test": "empty: --split train=0.14999,valid=0.85,test=0.00001 set none of 100 "
                "records aside for test"
            },
        ),
        (
            4,
            "train=0.0001,valid=0.9999",
            {
                "train": "empty: --split train=0.0001,valid=0.9999 set none of 4 records aside for "
                "train; --split train=0.99,valid=0.01 would set aside about 4"
            },
        ),
        (100, "train=1", {}),
        (1, "valid=0.01", {"valid": "empty"}),
    ],
)
def test_the_summary_explains_a_split_that_is_empty_although_its_share_is_above_zero(
    run: Run, tmp_path: Path, records: int, split: str, said: dict[str, str]
) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(fasta([(f"r{i}", text) for i, (_, text) in enumerate(made_records(records))]))
    words = ("--dedup", "none", "--split", split, "--out", tmp_path / "out")
    for done in (run("preprocess", path, *words), run("inspect", tmp_path / "out")):
        assert done.returncode == 0, done.stderr
        lines = (line.strip().partition("  ")[::2] for line in done.stdout.splitlines())
        empty = {name: text for name, text in lines if name in SPLITS and " bucket" not in text}
        assert empty == said


def test_a_count_of_one_has_a_singular_noun_and_a_low_speed_is_not_0(
    run: Run, tmp_path: Path
) -> None:
    path, out = tmp_path / "x.fasta", tmp_path / "out"
    path.write_bytes(b">a\n" + b"MK" * 700 + b"\n")
    built = run("preprocess", path, "--out", out).stdout
    assert re.search(r"speed  (0\.0*[1-9]|under 0\.001) MB/s of input \(0\.001 MB in", built)
    assert "train  1 bucket, 1 sequence, 1,024 tokens" in built
    assert "cropped  1 record to 1,022 residues: 378 residues left out" in built
    assert "(at most 1 sequence in a bucket of" in built
    assert "1 sequence, 1,024 of 16,384 tokens" in run("inspect", out, "--bucket", "0").stdout
    assert "1 input record: 1 kept, 0 duplicates" in run("stats", out).stdout


def test_gap_characters_are_counted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.fasta"
    path.write_text(">a\nMKV-LAACDEFGKLMN\n>b\nMKVLTTFGHWY\n>c\nMKVLTT-.FGHWW\n>d\nACDEFGHIKLMN\n")
    for words in (("preprocess", path, "--out", tmp_path / "out"), ("inspect", tmp_path / "out")):
        assert "gaps  3 gap characters (- or .) in buckets, one token each" in run(*words).stdout
    path.write_text(">b\nMKVLTTFGHWY\n")
    assert "gap character" not in run("preprocess", path, "--out", tmp_path / "none").stdout


def test_the_summary_names_the_files_of_a_folder_that_were_skipped(
    run: Run, tmp_path: Path
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.fasta", "old.fasta", "export.csv", "sub/genome.fna", ".hidden"):
        (folder / name).write_bytes(b">a\nMKTAYIAK\n")
    words = ("preprocess", folder, "--ignore", "old.*", "--out", out)
    line = "         skipped  3 files of input folders: export.csv, sub/genome.fna, old.fasta"
    for _ in range(2):  # a finished build shows the same line
        assert line in run(*words).stdout.splitlines()
    summary = json.loads(run(*words, "--log-json").stdout.splitlines()[-1])
    assert summary["skipped_files"] == ["export.csv", "sub/genome.fna", "old.fasta"]
    assert "skipped" not in run("preprocess", folder / "a.fasta", "--out", tmp_path / "b").stdout
