"""Files of `--exclude` that cannot match any record are refused or reported."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import Run

RECORDS = [(f"sp|P{i:05d}|N{i}_HUMAN x", text) for i, (_, text) in enumerate(made_records(30))]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "made.fasta"
    path.write_bytes(fasta(RECORDS))
    return path


def test_nucleotides_and_alignments_are_refused_unless_they_are_allowed(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    rng = random.Random(1)
    rows = ["".join(rng.choices("ACGT", k=200)) for _ in range(4)]
    contents = {
        "nucleotides": rows,
        "alignment": [f"M-{row}".replace("T", "L").replace("G", "K") for row in rows],
    }
    for kind, lines in contents.items():
        file = tmp_path / f"{kind}.fasta"
        file.write_bytes(fasta([(f"t{i}", line) for i, line in enumerate(lines)]))
        words = ("preprocess", corpus, "--out", tmp_path / kind, "--exclude", file)
        done = run(*words)
        assert done.returncode == 1
        assert f"{file}: looks like " in done.stderr
        assert kind in done.stderr
        assert f"give --allow-{kind}" in done.stderr
        assert run(*words, f"--allow-{kind}").returncode == 0


def test_residues_without_headers_are_not_read_as_ids(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    residues = next(text.upper() for _, text in RECORDS if text.isalpha() and len(text) > 60)
    (tmp_path / "bare.txt").write_text(f"# test set\n{residues}\n")
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--exclude", tmp_path / "bare.txt")
    assert done.returncode == 1
    assert f"bare.txt:2: '{residues[:20]}…' looks like residues" in done.stderr
    assert "give FASTA: write a line such as >name before each sequence" in done.stderr


@pytest.mark.parametrize("listed", [True, False], ids=["task list", "one process"])
def test_ids_that_no_record_has_are_reported(
    run: Run, corpus: Path, tmp_path: Path, listed: bool
) -> None:
    """A listed id is found if it is the id, accession or entry name of a record in any map task."""
    found = ["sp|P00001|N1_HUMAN", "P00002", "N25_HUMAN"]
    (tmp_path / "ids").write_text("\n".join([*found, *(f"no{i}" for i in range(7))]))
    out, sizes = tmp_path / "out", {"task_bytes": 2_000}
    words = (corpus, "--out", out, "--exclude", tmp_path / "ids")
    if listed:
        assert run("plan-tasks", *words, **sizes).returncode == 0
        for stage in ("map", "reduce"):
            each = ("--stage", stage, "--index", 0, "--array-size", 1)
            assert run("run-task", out, *each, **sizes).returncode == 0
        done = run("commit", out, **sizes)
    else:
        done = run("preprocess", *words, **sizes)
    assert done.returncode == 0, done.stderr
    line = "--exclude ids: no record has 7 of its 10 ids: no0, no1, no2, no3, no4, …\n"
    assert done.stderr.count(line) == 1
    assert f"note  {line}" in done.stdout


@pytest.mark.skipif(shutil.which("mmseqs") is None, reason="MMseqs2 is not installed")
def test_sequences_that_mmseqs_cannot_search_are_an_error_with_cause_and_remedy(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "low.fasta").write_text(f">low\n{'A' * 60}\n")
    file = f"mmseqs:{tmp_path / 'low.fasta'}"
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--exclude", file)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith(
        "thdpack preprocess: --exclude mmseqs:low.fasta: MMseqs2 cannot search any"
    )
    assert "low complexity" in said
    assert "omit the prefix mmseqs:" in said
    assert "run the same command" not in said
