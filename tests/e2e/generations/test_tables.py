"""`thdpack append` with the tables of --clusters and --metadata."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpus import (
    as_read,
    digest,
    fasta,
    made_records,
    read_manifest,
    read_records,
)
from tests.helpers.data.damaged_datasets import deep
from tests.helpers.data.growth import OPTIONS, SIZES, grow, sequences, statuses, write_inputs
from tests.helpers.processes.command_line import Run, use_few_small_tasks

PIECE = 126
"""Number of residues of a first piece with OPTIONS."""
Records = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_few_small_tasks(monkeypatch)
    monkeypatch.setattr("pipeline.build.generations.read_records.TASK_ROWS", 30)


def records_of(path: Path) -> Records:
    """Return id and residues of each record of a file."""
    parts = path.read_text().split(">")[1:]
    lines = [part.split("\n", 1) for part in parts]
    return [(header.split()[0], rest.replace("\n", "")) for header, rest in lines]


def write_table(path: Path, rows: Iterable[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{cluster}\t{member}\n" for cluster, member in rows))
    return path


def table_of(inputs: Iterable[Path], path: Path) -> Path:
    """Write a table in which records with the same first piece are in the same one of 40
    clusters."""
    return write_table(
        path,
        (
            (f"family{zlib.crc32(residues.upper()[:PIECE].encode()) % 40}", name)
            for each in inputs
            for name, residues in records_of(each)
        ),
    )


def distinct_records(count: int) -> Records:
    """Return records with different sequences. Some of `count` records are left out."""
    made = {as_read(residues) for _, residues in made_records(count, longest=120)}
    return [(f"r{i}", residues) for i, residues in enumerate(sorted(made - {""}))]


def splits(dataset: Path, clusters: dict[str, str]) -> dict[str, set[str]]:
    """Return the splits of each cluster's kept records.

    Args:
        clusters: cluster of each record, by id.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for row in read_records(dataset):
        if row["status"] == "kept":
            found[clusters[row["id"]]].add(row["split"])
    return found


@pytest.mark.parametrize("steps", [[1, 1, 1, 1], [2, 2], [1, 3]])
def test_appends_with_one_table_give_the_splits_and_sequences_of_one_build(
    run: Run, tmp_path: Path, steps: list[int]
) -> None:
    inputs = write_inputs(tmp_path, 4)
    option = ("--clusters", table_of(inputs, tmp_path / "clusters.tsv"))
    whole = tmp_path / "whole"
    assert run("preprocess", *inputs, "--out", whole, *OPTIONS, *option, **SIZES).returncode == 0
    out = grow(run, inputs[: steps[0]], tmp_path / "out", steps[:1], *OPTIONS, *option)
    before = digest(out)
    left = inputs[steps[0] :]
    for count in steps[1:]:
        done = run("append", out, *left[:count], *option, **SIZES)
        assert done.returncode == 0, done.stderr
        left = left[count:]
    assert statuses(out) == statuses(whole)
    assert sequences(out, 0) == sequences(whole, 0)
    assert {row["split"] for row in read_records(out)} == {"train", "valid", "test", None}
    assert deep(out) == []
    assert before.items() - digest(out).items() == {("manifest.json", before["manifest.json"])}
    assert run("compact", out, *inputs, *option, **SIZES).returncode == 0
    named = {entry.name for entry in read_manifest(out).files()}
    assert {name: digest(out)[name] for name in named}.items() <= digest(whole).items()


@pytest.mark.parametrize("listed", ["all records", "representatives"])
def test_new_records_go_to_the_split_of_their_cluster_after_it_was_renamed(
    run: Run, tmp_path: Path, listed: str
) -> None:
    """A new release often has another representative for a cluster. If the new representative is an
    earlier record, the new table need not list the other earlier records."""
    made = distinct_records(240)
    old, new = made[:120], made[120:]
    number = {name: i % 40 for i, (name, _) in enumerate(made)}
    representative = {number[name]: name for name, _ in old}
    before = write_table(tmp_path / "1.tsv", ((f"old{number[n]}", n) for n, _ in old))
    rows = [(representative[number[n]], n) for n, _ in new]
    if listed == "all records":
        rows = [(f"new{number[n]}", n) for n, _ in made]
    after = write_table(tmp_path / "2.tsv", rows)
    for name, records in (("old", old), ("new", new)):
        (tmp_path / f"{name}.fasta").write_bytes(fasta(records))
    out = tmp_path / "out"
    first = ("preprocess", tmp_path / "old.fasta", "--out", out, *OPTIONS, "--clusters", before)
    assert run(*first, **SIZES).returncode == 0
    earlier = splits(out, {name: str(i) for name, i in number.items()})
    done = run("append", out, tmp_path / "new.fasta", "--clusters", after, **SIZES)
    assert done.returncode == 0, done.stderr
    found = splits(out, {name: str(i) for name, i in number.items()})
    assert found == earlier
    assert all(len(each) == 1 for each in found.values())
    kept = [row for row in read_records(out) if row["status"] == "kept"]
    assert len(kept) == len(made)
    assert {split for each in found.values() for split in each} == {"train", "valid", "test"}
    assert deep(out) == []


def test_a_duplicate_of_an_earlier_record_joins_its_cluster_to_that_of_the_earlier_record(
    run: Run, tmp_path: Path
) -> None:
    made = distinct_records(200)[:120]
    old, new = made[:40], made[40:]
    copies = [(f"copy-{name}", residues) for name, residues in old]
    number = {name: str(i % 40) for i, (name, _) in enumerate(made)}
    number |= {f"copy-{name}": number[name] for name, _ in old}
    before = write_table(tmp_path / "1.tsv", ((f"old{number[n]}", n) for n, _ in old))
    after = write_table(tmp_path / "2.tsv", ((f"new{number[n]}", n) for n, _ in new + copies))
    (tmp_path / "old.fasta").write_bytes(fasta(old))
    (tmp_path / "new.fasta").write_bytes(fasta(new + copies))
    out = tmp_path / "out"
    first = ("preprocess", tmp_path / "old.fasta", "--out", out, *OPTIONS, "--clusters", before)
    assert run(*first, **SIZES).returncode == 0
    earlier = splits(out, number)
    done = run("append", out, tmp_path / "new.fasta", "--clusters", after, **SIZES)
    assert done.returncode == 0, done.stderr
    assert splits(out, number) == earlier
    assert deep(out) == []


def test_a_table_that_joins_earlier_clusters_of_different_splits_is_noted(
    run: Run, tmp_path: Path
) -> None:
    inputs = write_inputs(tmp_path, 2)
    table = table_of(inputs, tmp_path / "clusters.tsv")
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS, "--clusters", table)
    joined = write_table(
        tmp_path / "joined.tsv",
        (("one", name) for path in inputs for name, _ in records_of(path)),
    )
    done = run("append", out, inputs[1], "--clusters", joined, **SIZES)
    assert done.returncode == 0
    assert "1 cluster of this table joined earlier clusters of different splits" in done.stderr
    rows: list[dict[str, Any]] = [r for r in read_records(out) if r["source"] == "1.fasta"]
    assert len({row["split"] for row in rows if row["status"] == "kept"}) == 1


def test_metadata_of_new_records_is_read_from_a_table_with_the_same_columns(
    run: Run, tmp_path: Path
) -> None:
    inputs = write_inputs(tmp_path, 2)
    tables = []
    for number, path in enumerate(inputs):
        rows = [f"{name}\t{len(residues)}" for name, residues in records_of(path)]
        tables.append(tmp_path / f"{number}.tsv")
        tables[-1].write_text("\n".join(["id\tsize", *rows]) + "\n")
    wrong = tmp_path / "wrong.tsv"
    wrong.write_text(tables[1].read_text().replace("\n", "\t1\n").replace("size\t1", "size\tmass"))
    where = ("--where", "size < 200")
    option = ("--metadata", tables[0])
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS, *option, *where)
    done = run("append", out, inputs[1], "--metadata", wrong, **SIZES)
    assert done.returncode == 1
    assert "has the columns mass (int), size (int), but" in done.stderr
    assert read_manifest(out).generation == 1
    done = run("append", out, inputs[1], "--metadata", tables[1], **SIZES)
    assert done.returncode == 0, done.stderr
    rows = read_records(out)
    assert {row["source"] for row in rows} == {"0.fasta", "1.fasta"}
    assert all((row["status"] == "filtered") == (row["size"] >= 200) for row in rows)
    assert deep(out) == []


@pytest.mark.parametrize(
    ("built", "given", "said"),
    [
        (("--clusters", "table"), (), "was built with --clusters: give --clusters with a table"),
        (("--metadata", "meta"), (), "was built with --metadata: give --metadata with a table"),
        ((), ("--clusters", "table"), "was built without --clusters, so append cannot use it"),
    ],
)
def test_a_missing_table_and_a_table_too_many_are_refused(
    run: Run, tmp_path: Path, built: tuple[str, ...], given: tuple[str, ...], said: str
) -> None:
    inputs = write_inputs(tmp_path, 2)
    files = {"table": table_of(inputs, tmp_path / "clusters.tsv"), "meta": tmp_path / "meta.tsv"}
    names = [name for name, _ in records_of(inputs[0])]
    files["meta"].write_text("\n".join(["id\tsize", *(f"{name}\t1" for name in names)]))
    words = [[files.get(word, word) for word in each] for each in (built, given)]
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS, *words[0])
    done = run("append", out, inputs[1], *words[1], "--log-json", **SIZES)
    assert done.returncode == 1
    assert said in done.stderr
    assert json.loads((out / "manifest.json").read_text()).get("generation", 1) == 1


@pytest.mark.parametrize("listed", ["earlier", "new"])
def test_copies_outside_the_table_are_duplicates_and_verify_accepts_them(
    run: Run, tmp_path: Path, listed: str
) -> None:
    """Either only the earlier record or only its copy is in a table of clusters."""
    made = distinct_records(80)
    copies = [(f"copy-{name}", residues) for name, residues in made]
    rows = [(f"c{i % 9}", name) for i, (name, _) in enumerate(made)]
    known = {"earlier": rows, "new": rows[:1]}[listed]
    other = {"earlier": rows[:1], "new": [(c, f"copy-{name}") for c, name in rows]}[listed]
    (tmp_path / "old.fasta").write_bytes(fasta(made))
    (tmp_path / "new.fasta").write_bytes(fasta([*copies, ("r0", made[0][1])]))
    before = write_table(tmp_path / "1.tsv", known)
    after = write_table(tmp_path / "2.tsv", other)
    out = tmp_path / "out"
    first = ("preprocess", tmp_path / "old.fasta", "--out", out, *OPTIONS, "--clusters", before)
    assert run(*first, **SIZES).returncode == 0
    done = run("append", out, tmp_path / "new.fasta", "--clusters", after, **SIZES)
    assert done.returncode == 0, done.stderr
    status = {row["id"]: row["status"] for row in read_records(out)}
    assert {status[name] for name, _ in copies} == {"duplicate"}
    assert deep(out) == []
