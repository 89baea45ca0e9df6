"""Release and licence of the inputs appear wherever a dataset is described."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.report.card.conftest import STATED
from tests.helpers.processes.command_line import Run


def test_preprocess_inspect_and_stats_show_the_release_and_the_licence(
    run: Run, built: Path, inputs: Path, tmp_path: Path
) -> None:
    pytest.importorskip("polars", reason="thdpack's extra `report` (polars) is not installed")
    source = "source  UniRef50/2026_04, licence CC-BY-4.0"
    assert source in run("inspect", built).stdout
    words = ("preprocess", inputs / "plain.fasta", "--out", tmp_path / "out")
    assert source in run(*words, *STATED).stdout
    assert "source  licence MIT" in run(*words, "--license", "MIT", "--overwrite").stdout
    assert "source  " not in run(*words, "--overwrite").stdout
    files = ("--json", tmp_path / "r.json", "--html", tmp_path / "r.html")
    shown = run("stats", built, *files)
    assert "release of the inputs: UniRef50/2026_04, licence: CC-BY-4.0" in shown.stdout
    assert "UniRef50/2026_04" in (tmp_path / "r.html").read_text()
    report = json.loads((tmp_path / "r.json").read_bytes())
    assert (report["source_release"], report["license"]) == ("UniRef50/2026_04", "CC-BY-4.0")


def test_preprocess_suggests_the_spdx_identifier_that_a_licence_resembles(
    run: Run, inputs: Path, tmp_path: Path
) -> None:
    words = ("preprocess", inputs / "plain.fasta", "--out", tmp_path / "out", "--license")
    for more in ((), ("--dry-run",)):
        done = run(*words, "CC BY 4.0", *more)
        assert "did you mean CC-BY-4.0," in done.stdout + done.stderr
        assert done.returncode == 0
    done = run(*words, "CC-BY-4.0", "--overwrite")
    assert "did you mean" not in done.stdout + done.stderr


def test_card_states_the_release_and_the_licence_of_a_dataset_built_without_them(
    run: Run, inputs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert run("preprocess", inputs / "plain.fasta", "--out", out).returncode == 0
    before = (out / "manifest.json").read_bytes()
    done = run("card", out, "--license", "CC-BY-4.0")
    assert done.returncode == 0
    missing = "the release of the inputs: to state it, run this command with --source-release"
    assert missing in " ".join(done.stderr.split())
    done = run("card", out, *STATED)  # replaces the files of the first command
    assert (done.returncode, done.stderr) == (0, "")
    card, croissant = ((out / name).read_text() for name in ("README.md", "croissant.json"))
    assert "\nlicense: cc-by-4.0\n" in card
    assert "| licence of the inputs | <code>CC-BY-4.0</code> |" in card
    assert 'pretty_name: "UniRef50/2026_04, packed"' in card
    found = json.loads(croissant)
    assert found["license"] == "https://spdx.org/licenses/CC-BY-4.0.html"
    assert found["name"] == "UniRef50/2026_04, packed"
    assert (out / "manifest.json").read_bytes() == before
    assert "did you mean CC-BY-4.0," in run("card", out, "--license", "CC BY 4.0").stderr


def test_card_refuses_a_release_or_licence_other_than_those_of_the_build(
    run: Run, built: Path, tmp_path: Path
) -> None:
    for option, value in (("--license", "MIT"), ("--source-release", "UniRef50/2020_01")):
        done = run("card", built, "--out", tmp_path / "card", option, value)
        assert done.returncode == 2
        assert f"{option} is '{value}', but the dataset was built with" in done.stderr
        assert not (tmp_path / "card" / "README.md").exists()
    assert run("card", built, "--out", tmp_path / "card", *STATED).returncode == 0
