"""`thdpack stats` writes JSON and CSV files: their content, and what the terminal shows."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import REPO, Run
from tests.helpers.reports.stats import stats


def test_the_option_json_prints_json_instead_of_the_report_or_writes_it_to_a_file(
    run: Run,
    run_process: Run,
    dataset: Path,
    tmp_path: Path,
) -> None:
    alone = run_process("stats", dataset, "--json")
    assert run("stats", dataset, "--json", tmp_path / "report.json").returncode == 0
    assert json.loads(alone.stdout) == json.loads((tmp_path / "report.json").read_text())
    first = run("stats", "--json", "--csv", tmp_path / "csv", dataset)
    assert json.loads(first.stdout) == json.loads(alone.stdout)


@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize("option", ["--html", "--json", "--csv"])
def test_if_a_file_is_written_the_terminal_shows_only_the_first_lines(
    run: Run, built: Path, tmp_path: Path, option: str, compared: bool
) -> None:
    pytest.importorskip("jinja2")
    named = [built] * (1 + compared)
    whole, short = run("stats", *named).stdout, run("stats", *named, option, tmp_path / "r")
    assert short.stderr == f"wrote {tmp_path / 'r'}\n"
    assert whole.startswith(short.stdout)
    assert 0 < short.stdout.count("\n") < 8 < whole.count("\n")


def test_csv_tables_agree_with_the_json(run: Run, dataset: Path, tmp_path: Path) -> None:
    report = stats(run, dataset, "--csv", tmp_path / "csv", "--against", REPO / "data/sample.fasta")
    tables = {
        path.stem: list(csv.DictReader(path.open(newline="")))
        for path in (tmp_path / "csv").iterdir()
    }
    assert {
        "summary",
        "settings",
        "inputs",
        "lengths",
        "length_histogram",
        "composition",
        "splits",
        "waste",
        "budget",
        "longest",
        "repeated",
        "databases",
        "taxa",
        "leaks",
        "against",
    } <= set(tables)
    assert {"duplicates", "train_fill", "train_cost", "train_sequences", "valid_fill"} <= set(
        tables
    )
    assert int(tables["summary"][0]["records"]) == report["records"]
    assert [int(row["kept"]) for row in tables["inputs"]] == [
        flow["by_status"]["kept"] for flow in report["inputs"]
    ]
    assert sum(int(row["count"]) for row in tables["length_histogram"]) == report["records"]
    assert [float(row["waste"]) for row in tables["waste"]] == [
        way["waste"] for way in report["waste"]
    ]
    assert {row["letter"]: int(row["count"]) for row in tables["composition"]} == {
        x["letter"]: x["count"] for x in report["composition"]["letters"]
    }
    assert [int(row["kept"]) for row in tables["taxa"]] == [
        taxon["kept"] for taxon in report["headers"]["taxa"]
    ]
    assert [(row["first"], row["second"], int(row["shared"])) for row in tables["leaks"]] == [
        (*leak["splits"], leak["shared"]) for leak in report["leaks"]
    ]
    assert int(tables["against"][0]["in_train"]) == report["against"][0]["in_splits"]["train"]
    assert [row["id"] for row in tables["longest"]] == [note["id"] for note in report["longest"]]


def test_every_key_of_the_json_is_documented(run: Run, dataset: Path, tmp_path: Path) -> None:
    text = (REPO / "docs" / "reference" / "statistics.md").read_text()
    words = set(re.findall(r"[a-z_0-9]+", text))
    (tmp_path / "a.fasta").write_bytes(fasta(made_records(50)))
    for found in (
        stats(run, dataset, "--against", tmp_path / "a.fasta"),
        stats(run, tmp_path / "a.fasta"),
        stats(run, dataset, tmp_path / "a.fasta"),
    ):
        assert not keys_of(found) - words
        assert found["schema"] == 1


def keys_of(value: Any) -> set[str]:
    """Return all keys at any depth, except percentiles, whose keys are numbers."""
    if isinstance(value, dict):
        return {key for key in value if not key.isdigit()}.union(*map(keys_of, value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()
