"""Scores of mutants equal a plain loop over transformers."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from scipy.stats import spearmanr

from tests.helpers.data.corpus import LETTERS
from tests.helpers.oracles.slow_scores import LogP, mutant_score, slow_log_p
from tests.helpers.processes.scores import refused, score

COLUMNS: Final = {"wild-type": "wild_type_marginal", "masked": "masked_marginal"}
LENGTH: Final = 70


def wild_type(length: int = LENGTH) -> str:
    return "".join(np.random.default_rng(0).choice(list(LETTERS), length))


def mutated(residues: str, mutant: str) -> str:
    letters = list(residues)
    for word in mutant.split(":"):
        letters[int(word[1:-1]) - 1] = word[-1]
    return "".join(letters)


def mutants(residues: str) -> list[str]:
    """Return single, double and triple mutants. Some of them have one place in common."""
    rng = np.random.default_rng(1)
    found = []
    for number in range(60):
        places = sorted(rng.choice(len(residues), 1 + number % 3, replace=False))
        letters = rng.choice([*LETTERS], len(places))
        found.append(
            ":".join(f"{residues[p]}{p + 1}{a}" for p, a in zip(places, letters, strict=True))
        )
    return found


def assay(path: Path, residues: str, *, sequences: bool = True) -> list[float | None]:
    """Write a table of mutants. Return their measured values, some of which are equal, and some of
    which are missing.
    """
    measured = [None if i % 13 == 5 else float(i * 7 % 10) for i in range(60)]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["note", "mutant", *["mutated_sequence"] * sequences, "DMS_score"])
        for mutant, value in zip(mutants(residues), measured, strict=True):
            shown = [mutated(residues, mutant)] * sequences
            writer.writerow(['a, "b"', mutant, *shown, "" if value is None else value])
    return measured


def table(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("marginals", "longest", "ranks"),
    [("wild-type", 1024, 1), ("masked", 1024, 2), ("wild-type", 34, 2), ("masked", 34, 1)],
)
def test_scores_of_mutants_equal_a_plain_loop_and_spearman_equals_scipys(
    model: Path, log_p: LogP, tmp_path: Path, marginals: str, longest: int, ranks: int
) -> None:
    """With 34 tokens, the wild type needs windows."""
    measured = assay(tmp_path / "assay.csv", wild_type())
    said = score(
        *(model, "--mutations", tmp_path / "assay.csv", "--out", tmp_path / "scored.csv"),
        *("--marginals", marginals, "--max-seq-len", longest, "--overlap", 10),
        *("--row-tokens", max(longest, 128)),
        ranks=ranks,
    )
    expected = slow_log_p(
        log_p, wild_type(), masked=marginals == "masked", longest=longest - 2, overlap=10
    )
    before, after = table(tmp_path / "assay.csv"), table(tmp_path / "scored.csv")
    scores = [float(row.pop(COLUMNS[marginals])) for row in after]
    assert after == before
    loop = [mutant_score(expected, row["mutant"]) for row in before]
    assert scores == pytest.approx(loop, abs=1e-4)
    known = [i for i, value in enumerate(measured) if value is not None]
    rho = spearmanr([scores[i] for i in known], [measured[i] for i in known]).statistic
    assert f"Spearman {rho:.4f} with DMS_score of {len(known)} measured mutants" in said
    assert said.count("wrote scores of 60 mutants") == 1


@pytest.mark.parametrize("marginals", COLUMNS)
def test_a_row_of_a_short_wild_type_is_short(
    model: Path, log_p: LogP, tmp_path: Path, marginals: str
) -> None:
    """One row of 128 tokens, which has as many slots, holds both masked copies."""
    residues = wild_type(62)
    changed = [f"{residues[p]}{p + 1}W" for p in (3, 60)]
    (tmp_path / "two.csv").write_text("\n".join(["mutant", *changed]))
    score(
        *(model, "--mutations", tmp_path / "two.csv", "--out", tmp_path / "scored.csv"),
        *("--wild-type", residues, "--marginals", marginals),
    )
    assert refused(
        model, "--mutations", tmp_path / "two.csv", "--out", tmp_path / "scored.csv"
    ) == (
        2,
        f"thdpack score: --out {tmp_path}/scored.csv exists: choose another --out, or replace the "
        "file with --overwrite\n",
    )
    expected = slow_log_p(log_p, residues, masked=marginals == "masked", longest=99, overlap=1)
    found = [float(row[COLUMNS[marginals]]) for row in table(tmp_path / "scored.csv")]
    assert found == pytest.approx([mutant_score(expected, each) for each in changed], abs=1e-4)


def test_the_wild_type_may_be_a_file_or_residues_instead_of_mutated_sequences(
    model: Path, tmp_path: Path
) -> None:
    assay(tmp_path / "assay.csv", wild_type())
    assay(tmp_path / "short.csv", wild_type(), sequences=False)
    (tmp_path / "wild.fasta").write_text(
        f">wild type\n{wild_type()[:30].lower()}\n{wild_type()[30:]}*\n"
    )

    def scores(name: str, *options: object) -> list[str]:
        out = tmp_path / f"scored-{len(list(tmp_path.iterdir()))}.csv"
        score(model, "--mutations", tmp_path / name, "--out", out, *options)
        return [row["wild_type_marginal"] for row in table(out)]

    expected = scores("assay.csv")
    assert scores("short.csv", "--wild-type", tmp_path / "wild.fasta") == expected
    assert scores("short.csv", "--wild-type", wild_type()) == expected
    assert scores("assay.csv", "--wild-type", wild_type()) == expected


def test_errors_name_file_and_line_before_the_model_is_loaded(tmp_path: Path) -> None:
    assay(tmp_path / "assay.csv", wild_type(), sequences=False)
    no_model = tmp_path / "no-model"
    words = [no_model, "--mutations", tmp_path / "assay.csv", "--out", tmp_path / "out.csv"]
    assert refused(*words) == (
        1,
        f"thdpack score: {tmp_path}/assay.csv:1: the table has no column mutated_sequence, which "
        "would give the wild type: add it, or name the wild type with "
        "`thdpack score --wild-type`\n",
    )
    code, said = refused(*words, "--wild-type", wild_type()[1:])
    assert code == 1
    assert said.startswith(f"thdpack score: {tmp_path}/assay.csv:2: ")
    assert "Places are counted from 1: is this the right wild type" in said
    code, said = refused(*words, "--wild-type", tmp_path / "no.fasta")
    assert (code, said.count("\n")) == (2, 1)
    assert "neither a file nor residues" in said
    code, said = refused(*words, "--wild-type", wild_type(), "--measured", "activity")
    assert f"{tmp_path}/assay.csv:1: the table has no column activity" in said
    assert refused(*words[:-1], tmp_path / "assay.csv", "--wild-type", wild_type())[0] == 2
    assert not (tmp_path / "out.csv").exists()
    words = [no_model, "--out", tmp_path / "assay.csv", "--mutations"]  # --out exists
    code, said = refused(*words, tmp_path / "no.csv")
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith(f"thdpack score: {tmp_path}/no.csv: cannot read the table")
    code, said = refused(*words, tmp_path / "assay.csv", "--wild-type", "SEA.FAA")
    assert said.startswith("thdpack score: --wild-type is SEA.FAA, which is neither a file nor")
    words = [no_model, "--mutations", tmp_path / "assay.csv", "--wild-type", wild_type()]
    code, said = refused(*words, "--out", tmp_path / "assay.csv" / "out.csv")
    assert f"--out {tmp_path}/assay.csv/out.csv is inside of a file: choose another" in said
    assert code == 2
