"""`thdpack stats --against mmseqs:FILE` and the table of exclusions."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import pipeline.report.command as command
from pipeline.build.mmseqs import binary
from pipeline.build.options import PreprocessOptions
from schemas.errors import OptionError
from tests.helpers.data.corpus import LETTERS, fasta, made_records, read_records
from tests.helpers.processes.command_line import Run, preprocess
from tests.helpers.reports.stats import stats
from tests.helpers.stores.stores import http_store

LONG = "THDPACK_LONG" in os.environ
SPLITS = ("train", "valid", "test")
SHAPE = ("--capacity", "512", "--max-seq-len", "302", "--split", "valid=0.2,test=0.2")


def mutated(rng: random.Random, residues: str) -> str:
    """Return a copy of a sequence in which about a tenth of the residues differ."""
    return "".join(rng.choice(LETTERS) if rng.random() < 0.1 else x for x in residues)


@pytest.mark.skipif(shutil.which("mmseqs") is None, reason="MMseqs2 is not installed")
def test_mutated_copies_of_records_are_similar_and_random_sequences_are_not(
    run: Run, tmp_path: Path
) -> None:
    rng = random.Random(0)
    count = 400 if LONG else 60
    made = [(f"r{i}", "".join(rng.choices(LETTERS, k=200))) for i in range(count)]
    (tmp_path / "in.fasta").write_bytes(fasta(made))
    dataset = preprocess(tmp_path / "in.fasta", tmp_path / "dataset", *SHAPE)
    copied = made[: count // 2]
    entries = [mutated(rng, residues) for _, residues in copied]
    # repeat an entry, add a record's own sequence twice, and add sequences similar to no record
    entries += [entries[0], copied[1][1], copied[1][1]]
    entries += ["".join(rng.choices(LETTERS, k=200)) for _ in range(5)]
    named = [(f"e{i}", residues) for i, residues in enumerate(entries)]
    test = tmp_path / "test.fasta"
    test.write_bytes(fasta(named))
    (found,) = stats(run, dataset, "--against", f"mmseqs:{test}")["against"]
    splits = {row["id"]: row["split"] for row in read_records(dataset)}
    records = Counter(splits[name] for name, _ in copied)
    similar = records + Counter([splits["r0"], *[splits["r1"]] * 2])
    assert found["similar"] == {
        "identity": 0.3,
        "coverage": 0.5,
        "in_splits": {split: similar[split] for split in SPLITS},
        "in_kept": len(entries) - 5,
        "records": {split: records[split] for split in SPLITS},
    }
    assert all(found["similar"]["records"].values())
    assert (found["entries"], found["in_records"]) == (len(entries), 2)
    last = run("stats", dataset, "--against", f"mmseqs:{test}").stdout.splitlines()[-1]
    assert last.endswith(f" Similar to a record in train: {similar['train']}.")
    if LONG:
        table = tmp_path / "found.tsv"
        words = ["--format-output", "query,target,fident,qcov,tcov", "--min-seq-id", "0.3"]
        files = (tmp_path / "in.fasta", test, table, tmp_path / "tmp")
        subprocess.run(["mmseqs", "easy-search", *files, *words], check=True, capture_output=True)
        lines = [line.split("\t") for line in table.read_text().splitlines()]
        pairs = {tuple(line[:2]) for line in lines if max(map(float, line[3:])) >= 0.5}
        assert len({target for _, target in pairs}) == found["similar"]["in_kept"]


def test_a_search_needs_a_local_dataset_a_named_file_and_mmseqs(
    run: Run, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_store(built) as url:
        done = run("stats", url, "--against", "mmseqs:test.fasta")
    assert (done.returncode, done.stdout) == (1, "")
    assert "--against mmseqs:… reads the shards of datasets on local disks only" in done.stderr
    done = run("stats", built, "--against", "mmseqs:-")
    assert done.returncode == 2
    assert "name a file" in done.stderr
    monkeypatch.setattr(binary.shutil, "which", lambda name: None)
    options = PreprocessOptions(inputs=(str(built),), out="")
    with pytest.raises(OptionError, match="--against mmseqs:… needs MMseqs2"):
        command.report_of(options, ["mmseqs:test.fasta"])


def test_exclusions_are_counted_by_file_and_kind(run: Run, tmp_path: Path) -> None:
    made = made_records(150, longest=120)
    (tmp_path / "in.fasta").write_bytes(fasta(made))
    longer = [(f"e{i}", text) for i, (_, text) in enumerate(made) if len(text) > 40]
    parts = [(f"part{i}", text[5:35]) for i, (_, text) in enumerate(longer[:20])]
    (tmp_path / "b.fasta").write_bytes(fasta([*longer[30:50], *parts]))
    (tmp_path / "a.txt").write_text("made3\nmade5\nmade7\n")
    excluded = [
        word for name in ("b.fasta", "a.txt") for word in ("--exclude", str(tmp_path / name))
    ]
    dataset = preprocess(tmp_path / "in.fasta", tmp_path / "dataset", *SHAPE, *excluded)
    rows = [row for row in read_records(dataset) if row["status"] == "excluded"]
    counts: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        found = counts.setdefault((row["match_file"], row["exclusion"]), [0, 0])
        found[0] += 1
        found[1] += row["residues"]
    report = stats(run, dataset, "--csv", tmp_path / "csv")
    assert as_counts(report["exclusions"]) == counts
    assert {kind for _, kind in counts} >= {"equal", "listed", "contains"}
    files = [one["file"] for one in report["exclusions"]]
    assert files == sorted(files)
    assert "records left out by --exclude" in run("stats", dataset).stdout
    assert (tmp_path / "csv" / "exclusions.csv").read_text().count("\n") == 1 + len(counts)


def as_counts(rows: list[dict[str, Any]]) -> dict[tuple[str, str], list[int]]:
    return {(row["file"], row["kind"]): [row["records"], row["residues"]] for row in rows}
