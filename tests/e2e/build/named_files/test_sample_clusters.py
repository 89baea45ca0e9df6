"""`--sample-clusters`: for each variant, a plain program draws the same member of each cluster.

A member is a kept record in a cluster. The first piece of a record is its first max_seq_len - 2
residues. An ordinal is a record's number among all input records.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schemas.manifest import Manifest
from tests.helpers.data.corpus import digest, fasta, made_records, read_manifest, read_records
from tests.helpers.data.damage import run_and_damage
from tests.helpers.data.damaged_datasets import deep, shallow
from tests.helpers.oracles.slow_clusters import made_table
from tests.helpers.oracles.slow_variants import PIECE, SEED, Table, check_variants, held
from tests.helpers.processes.command_line import Run, preprocess, use_few_small_tasks
from tests.helpers.processes.killed import kill_builds
from tests.helpers.processes.started import start, stopping_at_change

BuildHere = Callable[..., Manifest]
SHAPE: dict[str, Any] = {
    "capacity": 512,
    "max_seq_len": PIECE + 2,
    "split": "train=0.5,valid=0.3,test=0.2",
    "seed": SEED,
}
OPTIONS = tuple(
    word for name, value in SHAPE.items() for word in (f"--{name.replace('_', '-')}", value)
)
SIZES = {"task_bytes": 25_000, "partition_bytes": 25_000}
LONG = "THDPACK_LONG" in os.environ


@pytest.fixture(scope="module")
def records() -> list[tuple[str, str]]:
    """Return records with duplicates. Some sequences begin like an earlier sequence."""
    rng = random.Random(3)
    found: list[tuple[str, str]] = []
    for header, residues in made_records(500, seed=3, longest=300):
        shared = bool(found) and rng.random() < 0.15
        begin = rng.choice(found)[1][:PIECE] if shared else ""
        found.append((header, begin + residues))
    return found


@pytest.fixture(scope="module")
def corpus(records: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sampled") / "made.fasta"
    path.write_bytes(fasta(records))
    return path


def table_of(records: list[tuple[str, str]], *, weighted: bool) -> Table:
    rng = random.Random(4)
    rows = dict.fromkeys(made_table([header for header, _ in records], seed=4))
    weights = {member: rng.choice(["1", "0.25", "1e-3", "40"]) for _, member in rows}
    return [(one, other, weights[other] if weighted else "") for one, other in rows]


def write_table(path: Path, table: Table) -> Path:
    path.write_text("".join("\t".join(filter(None, row)) + "\n" for row in table))
    return path


@pytest.fixture(scope="module")
def clusters(records: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weighted") / "clusters.tsv"
    return write_table(path, table_of(records, weighted=True))


@pytest.fixture(scope="module")
def whole(corpus: Path, clusters: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the hashes of all files of an uninterrupted build of three variants."""
    out = tmp_path_factory.mktemp("whole") / "out"
    words = (*OPTIONS, "--sample-clusters", clusters, "--variants", 3)
    return digest(preprocess(corpus, out, *words, **SIZES))


@pytest.mark.parametrize(
    ("options", "weighted", "runs"),
    [
        ({}, True, "one"),
        ({"long": "split"}, False, "many"),
        ({"long": "crop", "exclude": True}, True, "many"),
        ({"long": "drop", "min_residues": 20}, False, "one"),
        ({"dedup": "cropped", "exclude": True}, False, "one"),
        ({"dedup": "none"}, True, "many"),
        ({"dedup": "cropped", "on_invalid": "skip"}, True, "many"),
    ],
)
def test_each_variant_has_the_members_that_a_plain_python_program_draws(
    build_here: BuildHere,
    monkeypatch: pytest.MonkeyPatch,
    records: list[tuple[str, str]],
    corpus: Path,
    tmp_path: Path,
    options: dict[str, Any],
    weighted: bool,
    runs: str,
) -> None:
    """A run is a group of records that fits into memory. With `many`, runs are small, and a range
    of cluster keys has only about as many members as two partitions."""
    use_few_small_tasks(monkeypatch)
    if runs == "many":
        monkeypatch.setattr("pipeline.build.build_plan.PARTITION_BYTES", 12_000)
        monkeypatch.setattr("pipeline.build.spill.spilled_partition.WINDOW_BYTES", 3_000)
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 3_000)
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 2_000)
        monkeypatch.setattr("pipeline.build.clusters.draw_task._PARTITIONS_TOGETHER", 2)
    table, options = table_of(records, weighted=weighted), dict(options)
    if options.pop("exclude", False):
        (tmp_path / "excluded.fasta").write_bytes(fasta(records[::7]))
        options["exclude"] = (str(tmp_path / "excluded.fasta"),)
    path = write_table(tmp_path / "clusters.tsv", table)
    out = tmp_path / "out"
    build_here(corpus, out, sample_clusters=str(path), variants=3, **SHAPE, **options)
    check_variants(out, records, table)
    assert {row["status"] for row in read_records(out)} > {"kept"}
    assert shallow(out) == []
    assert deep(out) == []


@pytest.mark.parametrize("weights", [("", "", ""), ("1", "2", "5")])
def test_members_are_drawn_with_probabilities_in_proportion_to_their_weights(
    build_here: BuildHere, tmp_path: Path, weights: tuple[str, str, str]
) -> None:
    """Draw from 400 clusters of 3 records in 40 variants. A draw depends neither on the split (even
    in variant 0 with the seed 0) nor on the draws of other variants.

    The limits are six standard deviations. The seed is fixed, so the result does not vary.
    """
    clusters, variants = 400, 40
    rng = np.random.default_rng(0)
    residues = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 30)) for _ in range(3 * clusters)]
    (tmp_path / "in.fasta").write_bytes(fasta([(f"r{i}", text) for i, text in enumerate(residues)]))
    table = [(f"r{i - i % 3}", f"r{i}", weights[i % 3]) for i in range(len(residues))]
    path = write_table(tmp_path / "clusters.tsv", table)
    out = tmp_path / "out"
    shape = {**SHAPE, "seed": 0, "variants": variants}
    build_here(tmp_path / "in.fasta", out, sample_clusters=str(path), **shape)
    drawn = np.zeros((variants, clusters), dtype=np.int64)
    for variant in range(variants):
        for ordinal in held(out, variant):
            drawn[variant, ordinal // 3] = ordinal % 3
    numbers = np.array([float(weight or "1") for weight in weights])
    shares = numbers / numbers.sum()
    split = np.array([row["split"] for row in read_records(out)[::3]])
    for name in ("train", "valid", "test"):
        for part in (drawn[:, split == name], drawn[0, split == name]):
            counts = np.bincount(part.ravel(), minlength=3)
            limit = 6 * np.sqrt(part.size * shares * (1 - shares))
            assert (abs(counts - part.size * shares) < limit).all()
    for variant in range(1, variants):
        same = int((drawn[variant] == drawn[variant - 1]).sum())
        agree = float((shares**2).sum())
        assert abs(same - clusters * agree) < 6 * (clusters * agree * (1 - agree)) ** 0.5


@pytest.mark.parametrize("workers", [1, 2])
def test_bytes_depend_neither_on_the_order_of_rows_nor_on_the_number_of_workers_or_variants(
    run: Run,
    records: list[tuple[str, str]],
    corpus: Path,
    whole: dict[str, str],
    tmp_path: Path,
    workers: int,
) -> None:
    table, out = table_of(records, weighted=True), tmp_path / "out"
    random.Random(0).shuffle(table)
    path = write_table(tmp_path / "clusters.tsv", table)
    words = ("--out", out, *OPTIONS, "--sample-clusters", path, "--workers", workers)
    done = run("preprocess", corpus, *words, **SIZES)
    assert done.returncode == 0, done.stderr
    found = digest(out)
    del found["manifest.json"]
    assert found
    assert found.items() <= whole.items()
    done = run("preprocess", corpus, *words, "--variants", 3, **SIZES)
    assert done.returncode == 0, done.stderr
    assert digest(out) == whole
    assert run("preprocess", corpus, *words, "--variants", 3, **SIZES).returncode == 0


def test_the_number_of_partitions_does_not_change_the_draw(
    build_here: BuildHere,
    monkeypatch: pytest.MonkeyPatch,
    corpus: Path,
    clusters: Path,
    tmp_path: Path,
) -> None:
    for name, size in (("few", 1 << 20), ("many", 9_000)):
        monkeypatch.setattr("pipeline.build.build_plan.PARTITION_BYTES", size)
        options = {"sample_clusters": str(clusters), "variants": 2, **SHAPE}
        build_here(corpus, tmp_path / name, **options)
    assert len(read_manifest(tmp_path / "few").records) == 1
    assert len(read_manifest(tmp_path / "many").records) > 8
    for variant in range(2):
        assert held(tmp_path / "few", variant) == held(tmp_path / "many", variant)


def test_killed_builds_with_sampled_clusters_give_the_same_bytes(
    records: list[tuple[str, str]], tmp_path: Path
) -> None:
    """Kill a build right before random changes of its folder, or halfway through random writes."""
    made = records[:200]
    (tmp_path / "made.fasta").write_bytes(fasta(made))
    path = write_table(tmp_path / "clusters.tsv", table_of(made, weighted=True))
    count = 300 if LONG else 10
    clusters = (path, "sample_clusters")
    assert len(set(kill_builds(tmp_path / "made.fasta", tmp_path, count, *clusters))) >= 4


def test_a_task_list_adds_variants_and_gives_the_same_bytes_after_kills(
    run: Run, corpus: Path, clusters: Path, whole: dict[str, str], tmp_path: Path
) -> None:
    """Kill a process of each stage right before it changes the dataset's folder."""
    out = tmp_path / "out"
    for variants in (1, 3):
        words = ("--out", out, *OPTIONS, "--sample-clusters", clusters, "--variants", variants)
        planned = run("plan-tasks", corpus, *words, **SIZES)
        assert planned.returncode == 0, planned.stderr
        counts = dict(line.split()[:2] for line in planned.stdout.splitlines() if " task" in line)
        assert counts["draw"] == counts["link"] == counts["reduce"]
        assert int(counts["draw"]) > 2
        for stage in ("map", "link", "draw", "reduce"):
            if stage != "reduce":
                early = run("run-task", out, "--stage", "reduce", "--index", 0)
                assert early.returncode == 1
                assert f"{stage} tasks have not finished" in early.stderr
            share = ("run-task", out, "--stage", stage, "--index", 0, "--array-size", 1)
            process = start(*share, setup=stopping_at_change(3, out))
            process.wait_until_stopped()
            process.kill()
            process.communicate(timeout=500)
            done = run(*share)
            assert done.returncode == 0, done.stderr
        done = run("commit", out, **SIZES)
        assert done.returncode == 0, done.stderr
    assert digest(out) == whole
    assert not (out / ".build").exists()


def test_damaged_files_of_the_draw_stage_are_repaired(
    run: Run, run_process: Run, corpus: Path, clusters: Path, whole: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("--out", out, *OPTIONS, "--sample-clusters", clusters, "--variants", 3)
    assert run("plan-tasks", corpus, *words, **SIZES).returncode == 0
    steps = (
        ("map", None, ()),
        ("link", None, ("link-000001",)),
        ("draw", 0, ("joined-*",)),
        ("draw", None, ("draw-000002",)),
        ("reduce", 0, ("intervals-*",)),
        ("reduce", None, ()),
    )
    run_and_damage(run_process, out, steps)
    assert run("commit", out, **SIZES).returncode == 0
    assert digest(out) == whole
