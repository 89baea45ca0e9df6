"""A build refuses an input of mostly unknown letters, and warns if over 5 % are unknown."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.helpers.data.corpus import read_records
from tests.helpers.processes.command_line import Run

GOOD = b">good\n" + b"MKTAYIAKQR" * 20 + b"\n"
QUALITIES = b"".join(b">read%d\n" % i + b"40 40 37 12 9 40 31\n" * 3 for i in range(5))


def test_a_file_of_mostly_unknown_letters_is_refused_unless_on_invalid_is_given(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "good.fasta").write_bytes(GOOD)
    path = tmp_path / "x.fasta"
    path.write_bytes(QUALITIES)
    named = (tmp_path / "good.fasta", path, "--out", tmp_path / "out")
    refused = run("preprocess", *named)
    assert refused.returncode == 1
    assert f"{path}: 100% of its letters are outside the vocabulary" in refused.stderr
    assert "--on-invalid" in refused.stderr
    assert not (tmp_path / "out" / "manifest.json").exists()
    for option, kept, fate in (
        ("unk", 2, "they become <unk>"),
        ("skip", 1, "their records are left out"),
    ):
        done = run("preprocess", *named, "--overwrite", "--on-invalid", option)
        assert done.returncode == 0, done.stderr
        assert f"{path}: 100% of its letters are outside the vocabulary; {fate}" in done.stderr
        assert "good.fasta:" not in done.stderr
        assert sum(row["status"] == "kept" for row in read_records(tmp_path / "out")) == kept


def test_10_and_50_percent_of_unknown_letters_give_a_warning_and_4_percent_do_not(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x.fasta"
    for letters, warned in (
        (b"1" * 10 + b"M" * 90, True),
        (b"1" * 50 + b"M" * 50, True),
        (b"1" * 4 + b"M" * 96, False),
    ):
        path.write_bytes(b">a\n" + letters + b"\n")
        done = run("preprocess", path, "--out", tmp_path / "out", "--overwrite")
        assert done.returncode == 0, done.stderr
        assert ("of its letters are outside the vocabulary" in done.stderr) is warned


def test_records_that_differ_only_in_unknown_letters_are_duplicates(
    run: Run, tmp_path: Path
) -> None:
    """The letters J, * and 1 are unknown. The letters -, . and X are in the vocabulary."""
    path = tmp_path / "x.fasta"
    path.write_text("".join(f">{letter}\nMKTAY{letter}IAKQRQ\n" for letter in "J*1-.X"))
    statuses = {}
    for option in ("unk", "skip"):
        out = tmp_path / option
        assert run("preprocess", path, "--out", out, "--on-invalid", option).returncode == 0
        statuses[option] = [row["status"] for row in read_records(out)]
    kept = ["kept"] * 3
    assert statuses == {
        "unk": ["kept", "duplicate", "duplicate", *kept],
        "skip": ["invalid"] * 3 + kept,
    }


def test_unknown_letters_are_counted_over_all_tasks_of_a_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(
        b"".join(b">%d\n" % i + (b"1" if i % 5 else b"M") * 300 + b"\n" for i in range(50))
    )
    done = run("preprocess", path, "--out", tmp_path / "out", task_bytes=2_000)
    assert done.returncode == 1
    assert f"{path}: 80% of its letters" in done.stderr


def test_a_table_without_proteins_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"sequence": ["2024-01-01", "2024-01-02"]}), path)
    done = run("preprocess", path, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert f"{path}: 80% of its letters" in done.stderr


def test_a_task_list_refuses_inputs_of_unknown_letters_or_warns_about_them(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x.fasta"
    for content, code in ((QUALITIES, 1), (b">a\n" + b"1" * 10 + b"M" * 90 + b"\n", 0)):
        path.write_bytes(content)
        out = tmp_path / f"out{code}"
        assert run("plan-tasks", path, "--out", out).returncode == 0
        assert run("run-task", out, "--index", 0).returncode == 0
        done = run("run-task", out, "--index", 1)
        assert done.returncode == code, done.stderr
        assert f"{path}: {'100' if code else '10'}% of its letters" in done.stderr
