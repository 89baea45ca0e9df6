"""`--clusters`: no cluster is in two splits, and a plain Python program finds the same splits."""

from __future__ import annotations

import gzip
import os
import random
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.manifest import Manifest
from tests.helpers.data.corpus import digest, fasta, made_records, read_manifest, read_records
from tests.helpers.data.damage import run_and_damage
from tests.helpers.oracles.slow_clusters import Row, SlowClusters, made_table, slow_split
from tests.helpers.processes.command_line import Run, preprocess, use_few_small_tasks
from tests.helpers.processes.killed import kill_builds
from tests.helpers.processes.started import start, stopping_at_change

BuildHere = Callable[..., Manifest]
PIECE = 62
"""Largest number of residues in a piece. A piece is a sequence that was cut from a record."""
VALID, TEST = 0.3, 0.2
SPLIT = f"valid={VALID},test={TEST}"
SHAPE: dict[str, Any] = {"capacity": 512, "max_seq_len": PIECE + 2, "split": SPLIT}
OPTIONS = ("--capacity", "512", "--max-seq-len", PIECE + 2, "--split", SPLIT)
SIZES = {"task_bytes": 25_000, "partition_bytes": 25_000}
LONG = "THDPACK_LONG" in os.environ


def made_corpus(count: int, seed: int) -> list[tuple[str, str]]:
    """Return records with two kinds of headers. Some sequences begin like an earlier sequence."""
    rng = random.Random(seed)
    families = ("sp|P{:05d}|N{}_HUMAN A protein OS=Homo sapiens OX=9606", "plain{} {}")
    found: list[tuple[str, str]] = []
    for i, (_, residues) in enumerate(made_records(count, seed=seed, longest=200)):
        if found and rng.random() < 0.2:
            residues = rng.choice(found)[1][:PIECE] + residues[:PIECE]
        found.append((families[i % 2].format(i, i), residues))
    return found


@pytest.fixture(scope="module")
def records() -> list[tuple[str, str]]:
    return made_corpus(700, seed=1)


@pytest.fixture(scope="module")
def table(records: list[tuple[str, str]]) -> list[Row]:
    return made_table([header for header, _ in records], seed=1)


@pytest.fixture(scope="module")
def corpus(records: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clusters") / "made.fasta"
    path.write_bytes(fasta(records))
    return path


@pytest.fixture(scope="module")
def clusters(table: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("table") / "clusters.tsv", table)


@pytest.fixture(scope="module")
def whole(corpus: Path, clusters: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the hashes of all files of an uninterrupted build by one process."""
    out = tmp_path_factory.mktemp("whole") / "out"
    return digest(preprocess(corpus, out, *OPTIONS, "--clusters", clusters, **SIZES))


def write_table(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(f"{representative}\t{member}\n" for representative, member in rows))
    return path


def check_splits(
    out: Path, records: list[tuple[str, str]], table: list[Row], piece: int = PIECE
) -> None:
    """Compare the cluster and the split of each record with those that SlowClusters finds."""
    rows = read_records(out)
    kept = [row["status"] in ("kept", "duplicate") for row in rows]
    slow = SlowClusters(
        table, [record for record, keep in zip(records, kept, strict=True) if keep], piece
    )
    sides = defaultdict(set)
    for row, (header, residues), keep in zip(rows, records, kept, strict=True):
        key = slow.key_of(header, residues, kept=keep)
        assert row["cluster"] == key, header
        if row["status"] == "kept":
            expected = slow_split(key, residues, piece, valid=VALID, test=TEST)
            assert row["split"] == expected, header
            sides[key].add(row["split"])
        else:
            assert row["split"] is None
    sides.pop(None)
    assert all(len(splits) == 1 for splits in sides.values())
    assert {split for splits in sides.values() for split in splits} == {"train", "valid", "test"}


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ({}, "many"),
        ({"long": "split"}, "many"),
        ({"long": "crop"}, "many"),
        ({"long": "drop", "min_residues": 20}, "one"),
        ({"dedup": "cropped"}, "one"),
        ({"dedup": "none", "on_invalid": "skip"}, "many"),
    ],
)
def test_clusters_and_splits_equal_those_of_a_plain_python_program(
    build_here: BuildHere,
    monkeypatch: pytest.MonkeyPatch,
    records: list[tuple[str, str]],
    table: list[Row],
    corpus: Path,
    clusters: Path,
    tmp_path: Path,
    options: dict[str, Any],
    runs: str,
) -> None:
    """A run is a group of records that fits into memory. With `many`, runs are small."""
    use_few_small_tasks(monkeypatch)
    if runs == "many":
        monkeypatch.setattr("pipeline.build.spill.spilled_partition.WINDOW_BYTES", 3_000)
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 5_000)
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 4_000)
    build_here(corpus, tmp_path / "out", clusters=str(clusters), **SHAPE, **options)
    check_splits(tmp_path / "out", records, table)
    assert {row["status"] for row in read_records(tmp_path / "out")} > {"kept"}


@pytest.mark.parametrize("kind", ["plain", "gz"])
def test_bytes_depend_neither_on_the_order_of_rows_nor_on_the_number_of_workers(
    run: Run, table: list[Row], corpus: Path, whole: dict[str, str], tmp_path: Path, kind: str
) -> None:
    rows = [*table, *table[:20]] if kind == "gz" else [*table]  # repeated rows change nothing
    random.Random(0).shuffle(rows)
    clusters, out = write_table(tmp_path / "clusters.tsv", rows), tmp_path / "out"
    if kind == "gz":
        clusters.write_bytes(gzip.compress(clusters.read_bytes().replace(b"\n", b"\r\n")))
    words = ("--clusters", clusters, "--workers", 1 if kind == "gz" else 2)
    done = run("preprocess", corpus, "--out", out, *OPTIONS, *words, **SIZES)
    assert done.returncode == 0, done.stderr
    found = digest(out)
    if kind == "gz":  # the manifest states the size of the compressed table
        assert found.pop("manifest.json") != whole["manifest.json"]
    assert found.items() <= whole.items()
    assert read_manifest(out).named_files[0].rows == len({member for _, member in table})
    assert run("verify", out, "--deep").returncode == 0


def test_killed_builds_with_clusters_give_the_same_bytes(tmp_path: Path) -> None:
    """Kill a build right before random changes of its folder, or halfway through random writes."""
    made = made_corpus(300, seed=2)
    (tmp_path / "made.fasta").write_bytes(fasta(made))
    rows = made_table([header for header, _ in made], seed=2)
    clusters = write_table(tmp_path / "clusters.tsv", rows)
    finished = kill_builds(tmp_path / "made.fasta", tmp_path, 300 if LONG else 10, clusters)
    assert len(set(finished)) >= 4


def test_a_task_list_with_a_link_stage_gives_the_same_bytes_after_kills(
    run: Run,
    corpus: Path,
    clusters: Path,
    whole: dict[str, str],
    tmp_path: Path,
) -> None:
    """Kill a process of each stage right before it changes the dataset's folder."""
    out = tmp_path / "out"
    words = ("--out", out, *OPTIONS, "--clusters", clusters)
    planned = run("plan-tasks", corpus, *words, **SIZES)
    assert planned.returncode == 0, planned.stderr
    counts = dict(line.split()[:2] for line in planned.stdout.splitlines() if " task" in line)
    assert counts["link"] == counts["reduce"]
    assert int(counts["link"]) > 2
    for stage in ("map", "link", "reduce"):
        if stage != "reduce":
            early = run("run-task", out, "--stage", "reduce", "--index", 0)
            assert early.returncode == 1
            assert f"{stage} tasks have not finished" in early.stderr
        share = ("run-task", out, "--stage", stage, "--index", 0, "--array-size", 1)
        for moment in (1, 3, 6) if LONG else (3,):
            process = start(*share, setup=stopping_at_change(moment, out))
            process.wait_until_stopped()
            process.kill()
            process.communicate(timeout=500)
        done = run(*share)
        assert done.returncode == 0, done.stderr
    done = run("commit", out, **SIZES)
    assert done.returncode == 0, done.stderr
    assert digest(out) == whole
    assert not (out / ".build").exists()


def test_damaged_files_of_the_link_stage_are_repaired(
    run: Run, run_process: Run, corpus: Path, clusters: Path, whole: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = run("plan-tasks", corpus, "--out", out, *OPTIONS, "--clusters", clusters, **SIZES)
    assert done.returncode == 0, done.stderr
    steps = (
        ("map", None, ()),
        ("link", None, ("prepared-000000", "link-000001")),
        ("reduce", 0, ("joined-*",)),
        ("reduce", None, ()),
    )
    run_and_damage(run_process, out, steps)
    assert run("commit", out, **SIZES).returncode == 0
    assert digest(out) == whole


def test_a_table_that_names_no_input_record_is_an_error_that_gives_examples(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    clusters = write_table(tmp_path / "clusters.tsv", [("x", "other1"), ("x", "other2")])
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--clusters", clusters)
    assert done.returncode == 1
    assert "no record of the inputs is in this table" in done.stderr
    assert "such as other1, other2," in done.stderr
    assert "sp|P00000|N0_HUMAN" in done.stderr
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a\ta\nb\n", "clusters.tsv:2: expected a representative, a tab and a member"),
        (b"a\ta\n\na\tb\tc\n", "clusters.tsv:3: expected two columns"),
        (b"a\t\n", "clusters.tsv:1: an id is empty"),
        (b"\tb\n", "clusters.tsv:1: an id is empty"),
        (b"\n\n", "clusters.tsv: no cluster in this file"),
        (b"a\ta\n" + bytes(1 << 21), "clusters.tsv:2: this line has more than 1 MiB"),
        (gzip.compress(b"a\tb\n" * 99, mtime=0)[:-9], "clusters.tsv: truncated gzip archive"),
        (None, "clusters.tsv: no such file"),
    ],
    ids=[
        "no tab",
        "third column",
        "no member",
        "no representative",
        "blank",
        "long",
        "gz",
        "missing",
    ],
)
def test_the_error_for_an_invalid_table_of_clusters_names_the_file_and_the_fault(
    run: Run, corpus: Path, tmp_path: Path, text: bytes | None, said: str
) -> None:
    path = tmp_path / "clusters.tsv"
    if text is not None:
        path.write_bytes(text)
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--clusters", path)
    assert done.returncode == (2 if text is None else 1)
    assert said in done.stderr


def test_the_summary_says_how_many_records_are_in_the_table(
    run: Run,
    corpus: Path,
    clusters: Path,
    records: list[tuple[str, str]],
    table: list[Row],
    tmp_path: Path,
) -> None:
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--clusters", clusters, *OPTIONS)
    slow = SlowClusters(table, [], PIECE)
    found = sum(slow.name_of(header) is not None for header, _ in records)
    said = re.search(
        f"--clusters: found {found:,} of {len(records):,} records in .*, but not (.*)", done.stderr
    )
    assert said is not None
    *missing, last = said[1].partition(";")[0].split(", ")
    assert last == "…"
    assert len(missing) == 5
    headers = {header.split()[0]: header for header, _ in records}
    assert all(slow.name_of(headers[name]) is None for name in missing)
    row = next(row for row in read_records(tmp_path / "out") if row["cluster"] is not None)
    shown = run("inspect", tmp_path / "out", "--record", row["id"]).stdout
    assert f"cluster {row['cluster']:016x}\n" in shown
    again = run("preprocess", corpus, "--out", tmp_path / "out", "--clusters", clusters, *OPTIONS)
    assert again.returncode == 0, again.stderr
    write_table(tmp_path / "clusters.tsv", [("plain1", "plain1")])
    other = ("--clusters", tmp_path / "clusters.tsv")
    refused = run("preprocess", corpus, "--out", tmp_path / "out", *other, *OPTIONS)
    assert refused.returncode == 2
    assert "--overwrite" in refused.stderr
    assert read_manifest(tmp_path / "out").named_files[0].name == "clusters.tsv"
