"""Options without effect are refused, and `stats` prints the names of the files that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import Run, preprocess


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "made.fasta"
    path.write_bytes(fasta(made_records(30)))
    return path


@pytest.fixture(scope="module")
def dataset(corpus: Path) -> Path:
    return preprocess(corpus, corpus.parent / "out")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("stats", "--capacity", "4096"), 2, "--capacity is for raw sequences"),
        (("stats", "--long", "drop", "--max-seq-len", "99"), 2, "-len and --long are for raw"),
        (("inspect", "--split", "valid"), 2, "--split valid needs --bucket"),
        (("inspect", "--record", "x", "--bucket", "0"), 2, "give only one of these"),
        (("preprocess", "--out", "d", "--exclude-identity", "0.4"), 2, "given without --exclude"),
        (("preprocess", "--out", "d", "--exclude-coverage", "0.4"), 2, "given without --exclude"),
        (("run-task", "--index", "0", "--plan", "deadbeef"), 2, "--plan deadbeef: not the name of"),
    ],
)
def test_options_without_effect_and_unknown_names_are_refused(
    run: Run, dataset: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    done = run(words[0], dataset, *words[1:])
    assert done.returncode == code
    assert said in done.stderr + done.stdout


def test_an_invalid_plan_name_and_a_replaced_plan_have_different_errors(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    assert run("plan-tasks", corpus, "--out", tmp_path / "out").returncode == 0
    words = ("run-task", tmp_path / "out", "--index", "0", "--plan")
    assert "copy the name that plan-tasks printed; the plan here is" in run(*words, "dead").stderr
    assert (
        "check the digest; if it is right, somebody planned with --overwrite"
        in run(*words, "0" * 16 + "-" + "0" * 16).stderr
    )


def test_memory_too_small_for_a_task_is_refused(run: Run, corpus: Path, tmp_path: Path) -> None:
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--memory", "10M")
    assert done.returncode == 2
    assert "give at least 256M" in " ".join(done.stderr.split())


def test_stats_prints_the_names_of_written_files_to_standard_error(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    pytest.importorskip("jinja2")
    html, csv = tmp_path / "r.html", tmp_path / "csv"
    done = run("stats", corpus, "--html", html, "--csv", csv, "--capacity", "4096", "--json")
    assert done.stderr.splitlines()[-2:] == [f"wrote {csv}", f"wrote {html}"]
    assert "wrote" not in done.stdout
    assert html.exists()
