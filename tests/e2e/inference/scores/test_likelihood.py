"""Scores of records equal those of plain transformers, wherever a record lies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests.helpers.data.corpus import LETTERS, fasta
from tests.helpers.oracles.slow_scores import LogP, own, slow_log_p
from tests.helpers.processes.command_line import preprocess
from tests.helpers.processes.inference import rows
from tests.helpers.processes.ranks import Job
from tests.helpers.processes.scores import SCORE, content, score

WINDOW: Final = 64
"""Value of --max-seq-len: a window has 62 residues."""
OVERLAP: Final = 20
KILLED: Final = """
import os, signal, sys
import trainer.inference.parts as parts
import trainer.inference.sizes as sizes
sizes._UNIT_SECONDS = 1e-9  # a part has the tokens of one row
left, publish = int(sys.argv[1]), parts.publish
def die(partial, path):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    publish(partial, path)
parts.publish = die
from trainer.score import main
main(sys.argv[2:])
"""
"""Program that kills itself right before it publishes its part number sys.argv[1]; 0: never."""


def records() -> list[tuple[str, str]]:
    """Return short and long records, unknown and rare letters, and a duplicate."""
    rng = np.random.default_rng(0)

    def residues(count: int) -> str:
        return "".join(rng.choice(list(LETTERS), count))

    made = [(f"r{i}", residues(n)) for i, n in enumerate((1, 30, 62, 63, 15, 150, 40))]
    return [*made, ("rare", f"XBJ{residues(9)}U"), ("twin", made[1][1])]


@pytest.fixture(scope="module")
def proteins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("proteins") / "proteins.fasta"
    path.write_bytes(fasta(records()))
    return path


@pytest.fixture(scope="module")
def dataset(proteins: Path) -> Path:
    """Build a dataset of several buckets, in two splits, with sequences that need windows."""
    out = proteins.parent / "dataset"
    sizes = ("--capacity", "256", "--max-seq-len", "256", "--split", "train=0.5,valid=0.5")
    return preprocess(proteins, out, *sizes)


@pytest.mark.parametrize(("ranks", "masked"), [(1, False), (2, False), (1, True), (2, True)])
def test_scores_equal_those_of_plain_transformers(
    model: Path,
    log_p: LogP,
    proteins: Path,
    dataset: Path,
    tmp_path: Path,
    ranks: int,
    masked: bool,
) -> None:
    data = proteins if ranks == 1 else dataset
    options = ["--max-seq-len", WINDOW, "--overlap", OVERLAP, "--row-tokens", 256]
    score(model, data, "--out", tmp_path / "out", *options, *["--masked"] * masked, ranks=ranks)
    prefix = "masked_" if masked else ""
    found = rows(tmp_path / "out")
    assert [row["id"] for row in found] == [name for name, _ in records()]
    for row, (_, residues) in zip(found, records(), strict=True):
        expected = own(
            slow_log_p(log_p, residues, masked=masked, longest=WINDOW - 2, overlap=OVERLAP),
            residues,
        )
        assert row[f"{prefix}log_likelihood"] == pytest.approx(expected.sum(), rel=1e-5)
        assert row[f"{prefix}perplexity"] == pytest.approx(np.exp(-expected.mean()), rel=1e-5)
        assert row["used_residues"] == len(residues)


def test_records_with_fewer_residues_than_units_of_work_are_scored(
    model: Path, log_p: LogP, tmp_path: Path
) -> None:
    """A large model has many units, and some of them then have no residue."""
    (data := tmp_path / "two.fasta").write_bytes(fasta([("a", "MKTAY"), ("b", "M")]))
    program = "import trainer.inference.sizes as s; s._UNIT_SECONDS = 1e-9\n" + SCORE
    Job(program, [str(model), str(data), "--out", str(tmp_path / "out"), "--masked"]).finish()
    for row, residues in zip(rows(tmp_path / "out"), ("MKTAY", "M"), strict=True):
        expected = slow_log_p(log_p, residues, masked=True, longest=1022, overlap=256)
        likelihood = own(expected, residues).sum()
        assert row["masked_log_likelihood"] == pytest.approx(likelihood, rel=1e-5)


def test_the_likelihood_of_a_record_does_not_depend_on_its_neighbours(
    model: Path, proteins: Path, dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "one.fasta").write_bytes(fasta(records()[1:2]))
    together = rows_of(model, proteins, tmp_path / "together", "--max-seq-len", "256")
    alone = rows_of(model, tmp_path / "one.fasta", tmp_path / "alone", "--max-seq-len", "256")
    packed = rows_of(model, dataset, tmp_path / "packed")
    expected = [pytest.approx(value, rel=1e-6) for value in together]
    assert packed == expected
    assert alone == expected[1:2]


def rows_of(model: Path, data: Path, out: Path, *options: str) -> list[float]:
    score(model, data, "--out", out, *options)
    return [row["log_likelihood"] for row in rows(out)]


def test_a_masked_run_killed_several_times_writes_the_same_bytes(
    model: Path, proteins: Path, tmp_path: Path
) -> None:
    def words(kill_at: int, out: str) -> list[str]:
        options = ["--masked", "--max-seq-len", str(WINDOW), "--row-tokens", "256"]
        return [str(kill_at), str(model), str(proteins), "--out", str(tmp_path / out), *options]

    Job(KILLED, words(0, "whole")).finish()
    for kill_at in (1, 3, 1, 5):
        with Job(KILLED, words(kill_at, "killed")) as job:
            assert job.wait() == -9, job.said
    parts = len(list((tmp_path / "killed" / ".parts").glob("*.arrow")))
    assert parts == 0 + 2 + 0 + 4
    said = Job(KILLED, words(0, "killed"), ranks=2).finish()
    assert f"continuing: {parts} of " in said
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    assert not (tmp_path / "killed" / ".parts").exists()


def test_an_output_folder_of_other_scores_is_refused(
    model: Path, proteins: Path, tmp_path: Path
) -> None:
    score(model, proteins, "--out", tmp_path / "out")
    with Job(
        KILLED, ["0", str(model), str(proteins), "--out", str(tmp_path / "out"), "--masked"]
    ) as job:
        assert job.wait() == 2
    assert "--masked was off, and is now on" in job.said
