"""`--evaluate` of `thdpack train`: the numbers of `thdpack score`, and an unchanged training."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.inference.scores.test_mutations import assay, wild_type
from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.data.many_shards import LONGEST, MAX_SEQ_LEN
from tests.helpers.processes.inference import rows
from tests.helpers.processes.ranks import TRAIN, Job
from tests.helpers.processes.runs import (
    EACH,
    EVERY,
    ROUNDING,
    STEPS,
    arguments,
    cut,
    losses,
    train,
)
from tests.helpers.processes.scores import score

AT: Final = [*range(EVERY, STEPS + 1, EVERY)]
"""Steps of the validations."""


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an assay and with sequences, some of which need windows."""
    folder = tmp_path_factory.mktemp("sets")
    assay(folder / "assay.csv", wild_type(2 * LONGEST))
    records = [
        (f"r{i}", residues) for i, (_, residues) in enumerate(made_records(20, longest=LONGEST))
    ]
    (folder / "few.fasta").write_bytes(fasta([*records, ("long", wild_type(3 * LONGEST))]))
    return folder


def options(sets: Path) -> list[str]:
    return ["--evaluate", f"assay={sets}/assay.csv", "--evaluate", f"few={sets}/few.fasta"]


def lines(out: Path, kind: str) -> dict[int, dict[str, Any]]:
    """Return the lines of a kind in metrics.jsonl, by step. There is one for a step."""
    found = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    chosen = [line for line in found if line["kind"] == kind]
    assert len({line["step"] for line in chosen}) == len(chosen)
    return {line["step"]: line for line in chosen}


@pytest.fixture(scope="module")
def evaluated(many_shards: Path, sets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(many_shards, tmp_path_factory.mktemp("evaluated") / "run", *options(sets))


def test_evaluations_do_not_change_the_training(evaluated: Path, whole: Path) -> None:
    assert losses(evaluated) == losses(whole)
    assert losses(evaluated, "valid") == losses(whole, "valid")
    weights = [run / "export" / "model.safetensors" for run in (evaluated, whole)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert [*lines(evaluated, "evaluate/assay")] == [*lines(evaluated, "evaluate/few")] == AT


def test_evaluations_have_the_numbers_of_thdpack_score(
    evaluated: Path, sets: Path, tmp_path: Path
) -> None:
    longest = ["--max-seq-len", MAX_SEQ_LEN]
    said = score(
        *(evaluated, "--mutations", sets / "assay.csv", "--out", tmp_path / "scored.csv"), *longest
    )
    last = lines(evaluated, "evaluate/assay")[STEPS]
    assert f"Spearman {last['spearman']:.4f} with DMS_score" in said
    assert last["mutants"] == 55
    score(evaluated, sets / "few.fasta", "--out", tmp_path / "out", *longest)
    # an evaluation counts equal sequences once
    found = [row for row in rows(tmp_path / "out") if row["status"] == "kept"]
    residues = sum(row["used_residues"] for row in found)
    loss = -sum(row["log_likelihood"] for row in found) / residues
    last = lines(evaluated, "evaluate/few")[STEPS]
    assert last["residues"] == residues
    assert last["loss"] == pytest.approx(loss, rel=1e-6)
    assert last["perplexity"] == pytest.approx(math.exp(loss), rel=1e-6)


def test_evaluations_are_the_same_on_two_ranks(
    many_shards: Path, evaluated: Path, sets: Path, tmp_path: Path
) -> None:
    arrangements = ("--shard none", "--shard optimizer", "--shard full", "--context-parallel 2")
    runs = {flags: tmp_path / flags.replace(" ", "") for flags in arrangements}
    each = [
        arguments(many_shards, out, *options(sets), *flags.split()) for flags, out in runs.items()
    ]
    Job(EACH, [json.dumps(each)], ranks=2).finish()
    for flags, out in runs.items():
        for step in AT:
            few, expected = (lines(run, "evaluate/few")[step] for run in (out, evaluated))
            assert few["loss"] == pytest.approx(expected["loss"], abs=ROUNDING), flags
            ranked, expected = (lines(run, "evaluate/assay")[step] for run in (out, evaluated))
            # rounding may swap the ranks of two mutants
            assert ranked["spearman"] == pytest.approx(expected["spearman"], abs=1e-3), flags


def test_a_resumed_run_evaluates_each_validation_once(
    many_shards: Path, evaluated: Path, sets: Path, tmp_path: Path
) -> None:
    out = train(many_shards, cut(evaluated, tmp_path / "run", 8), *options(sets))
    for kind in ("evaluate/assay", "evaluate/few"):
        expected, found = lines(evaluated, kind), lines(out, kind)
        assert [*found] == AT
        for step in AT:
            assert {**found[step], "time": ""} == {**expected[step], "time": ""}


def test_a_finished_run_evaluates_a_new_set(
    many_shards: Path, whole: Path, evaluated: Path, sets: Path, tmp_path: Path
) -> None:
    out = cut(whole, tmp_path / "run", STEPS)
    for _ in range(2):  # the second time, nothing is left to do
        train(many_shards, out, *options(sets))
        found, expected = lines(out, "evaluate/few"), lines(evaluated, "evaluate/few")
        assert [*found] == [STEPS]
        assert {**found[STEPS], "time": ""} == {**expected[STEPS], "time": ""}


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_wrong_set_is_refused_before_the_training(
    many_shards: Path, tmp_path: Path, more: list[str]
) -> None:
    (tmp_path / "bad.fasta").write_text("MKV\n")
    (tmp_path / "bad.csv").write_text("mutant,mutated_sequence,DMS_score\nA1C,CC,0.5\nB,AC,1\n")
    (tmp_path / "equal.csv").write_text("mutant,mutated_sequence,DMS_score\nA1C,CC,1\nA1D,DC,1\n")
    (tmp_path / "other.tsv").write_text("id\tprotein\nx\tMKVLA\n")
    (tmp_path / "plain.csv").write_text("mutant,mutated_sequence\nA1C,CC\n")
    for name, error in (
        ("bad.fasta", "bad.fasta:1: not FASTA but residues without a header: write a line such as"),
        (
            "other.tsv",
            "other.tsv:1: no column 'sequence' in the header line, which has id, protein",
        ),
        ("none.fasta", "none.fasta: there is no such FASTA file"),
        ("bad.csv", "bad.csv:3: mutant is 'B', expected substitutions such as A42G"),
        ("equal.csv", "equal.csv: DMS_score has fewer than two different values"),
        ("plain.csv", "plain.csv:1: the table has no column DMS_score"),
    ):
        words = arguments(
            many_shards, tmp_path / "run", "--evaluate", f"x={tmp_path / name}", *more
        )
        with Job(TRAIN, words) as job:
            assert job.wait() == 1, job.said
        assert job.said.startswith(f"thdpack train: --evaluate x: {tmp_path}/{error}")
        assert job.said.count("\n") == 1
        remedy = "(only `thdpack preprocess` has --sequence-column: convert the file to FASTA of"
        assert (remedy in job.said) == ("--sequence-column" in job.said)
    assert not (tmp_path / "run").exists()
