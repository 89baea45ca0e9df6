"""Errors about damaged files, links and limits name the remedy. Unknown files are left alone."""

from __future__ import annotations

import csv
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.report.render.export import _cell
from schemas.errors import BuildError
from schemas.manifest import Manifest
from tests.helpers.data.corpus import digest, fasta, made_records, read_manifest
from tests.helpers.processes.command_line import REPO, InThisProcess, Run, command, environment
from tests.helpers.processes.disturbed_builds import listed, work_off

SMALL: dict[str, Any] = {"capacity": 1024, "max_seq_len": 512}
BuildHere = Callable[..., Manifest]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "made.fasta"
    path.write_bytes(fasta(made_records(200)))
    return path


def damage(out: Path) -> Path:
    """Flip a bit of a shard. The shard's size and the manifest do not change."""
    shard = out / read_manifest(out).shards["train"][0].name
    content = bytearray(shard.read_bytes())
    content[-600] ^= 1
    shard.write_bytes(content)
    return shard


def test_for_a_damaged_dataset_verify_suggests_overwrite_which_builds_it_again(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("preprocess", corpus, "--out", out, "--capacity", "1024", "--max-seq-len", "512")
    assert run(*words).returncode == 0
    whole = digest(out)
    damage(out)
    done = run("verify", out)
    assert done.returncode == 1
    assert "--overwrite" in done.stderr
    assert run(*words, "--overwrite").returncode == 0
    assert digest(out) == whole
    assert run("verify", out).returncode == 0


def test_a_task_list_planned_with_overwrite_builds_a_damaged_dataset_again(
    build_here: BuildHere, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.build.array_jobs.run_listed.ProcessExecutor", InThisProcess)
    out = tmp_path / "out"
    build_here(corpus, out, **SMALL)
    whole = digest(out)
    damage(out)
    assert work_off(str(out), listed(corpus, str(out), overwrite=True).digest) is not None
    assert digest(out) == whole


@pytest.mark.parametrize("name", [".build", "train", "valid", "records"])
def test_a_link_in_place_of_a_folder_is_refused_and_its_target_does_not_change(
    build_here: BuildHere, corpus: Path, tmp_path: Path, name: str
) -> None:
    out, target = tmp_path / "out", tmp_path / "precious"
    (target / "deep").mkdir(parents=True)
    names = (
        "notes.txt",
        "x.tmp",
        "made.host.1.tmp",
        "deep/photo",
        "0123456789abcdef-00000-0.arrow",
        "map-000000.arrow",
    )
    for file in names:
        (target / file).write_text("mine")
    out.mkdir()
    (out / name).symlink_to(target)
    with pytest.raises(BuildError, match=f"{name} is a link.*remove the link"):
        build_here(corpus, out, **SMALL)
    assert all((target / file).read_text() == "mine" for file in names)
    (out / name).unlink()
    build_here(corpus, out, **SMALL)


def test_foreign_files_in_a_work_folder_and_the_target_of_a_link_are_left_alone(
    build_here: BuildHere, corpus: Path, tmp_path: Path
) -> None:
    out, target = tmp_path / "out", tmp_path / "precious"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    (out / ".build").mkdir(parents=True)
    # the link has the name of a work file, so the build removes the link but not its target
    (out / ".build" / "map-000077.arrow").symlink_to(target)
    (out / ".build" / "mine.tmp").write_text("mine")
    (out / ".build" / "release").mkdir()
    (out / ".build" / "release" / "program").write_text("mine")
    build_here(corpus, out, **SMALL)
    assert (target / "notes.txt").read_text() == "mine"
    left = sorted(path.name for path in (out / ".build").iterdir())
    assert left == ["mine.tmp", "release"]
    assert (out / ".build" / "release" / "program").read_text() == "mine"


def test_a_lock_that_is_a_link_is_refused(
    build_here: BuildHere, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "out" / ".build").mkdir(parents=True)
    (tmp_path / "out" / ".build" / "lock").symlink_to(tmp_path / "made_elsewhere")
    with pytest.raises(BuildError, match="cannot write to"):
        build_here(corpus, tmp_path / "out", **SMALL)
    assert not (tmp_path / "made_elsewhere").exists()


@pytest.mark.parametrize("typed", ["proteins.fasta", "protein.fasta.gz", "Proteins.fasta.gz"])
def test_the_error_for_a_missing_file_suggests_a_similar_one(
    run: Run, tmp_path: Path, typed: str
) -> None:
    (tmp_path / "proteins.fasta.gz").touch()
    said = run("preprocess", tmp_path / typed, "--out", tmp_path / "out").stderr
    meant = tmp_path / "proteins.fasta.gz"
    assert said == f"thdpack preprocess: {tmp_path / typed}: no such file; did you mean {meant}?\n"


def test_a_refused_build_leaves_no_files(run: Run, corpus: Path, tmp_path: Path) -> None:
    odd = tmp_path / "dna.fasta"
    odd.write_text(">a\n" + "ACGT" * 50 + "\n")
    out = tmp_path / "new" / "deep" / "out"
    for code, words, stdin in (
        (1, (odd,), None),
        (2, (tmp_path / "missing.fasta",), None),
        (2, (corpus, corpus), None),
        (1, ("-",), odd.read_bytes()),
    ):
        assert run("preprocess", *words, "--out", out, stdin=stdin).returncode == code
        assert not (tmp_path / "new").exists()
    out.mkdir(parents=True)
    assert run("plan-tasks", odd, "--out", out).returncode == 1
    assert not list(out.iterdir())


def test_a_refused_plan_leaves_the_files_of_an_earlier_plan(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert run("plan-tasks", corpus, "--out", out).returncode == 0
    before = sorted(path.name for path in (out / ".build").iterdir())
    assert run("plan-tasks", corpus, "--out", out, "--capacity", "4096").returncode == 1
    assert sorted(path.name for path in (out / ".build").iterdir()) == before


@pytest.mark.parametrize("limit", [9, 16])
def test_a_low_limit_of_open_files_gives_a_one_line_error(
    corpus: Path, tmp_path: Path, limit: int
) -> None:
    done = subprocess.run(
        command("preprocess", str(corpus), "--out", str(tmp_path / "out"), "--workers", "2"),
        cwd=REPO,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )
    assert done.returncode == 1
    assert (
        f"thdpack preprocess: too many open files: this process may open {limit}; "
        "raise the limit, as in `ulimit -n 1024`" in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_csv_written_by_stats_contains_no_formula_and_no_control_character(
    run: Run, tmp_path: Path
) -> None:
    names = ["=HYPERLINK(1)", "+1+1", "-2-2", "@SUM(1)", "\x1b[31mred", "\uff1dfull", "plain"]
    corpus = tmp_path / "made.fasta"
    corpus.write_text("".join(f">{name}\n{'MKT' * (9 - i)}\n" for i, name in enumerate(names)))
    assert run("stats", corpus, "--csv", tmp_path / "csv").returncode == 0
    with open(tmp_path / "csv" / "longest.csv", encoding="utf-8", newline="") as file:
        found = [row["id"] for row in csv.DictReader(file)]
    assert found == [
        "'=HYPERLINK(1)",
        "'+1+1",
        "'-2-2",
        "'@SUM(1)",
        "\\x1b[31mred",
        "'\uff1dfull",
        "plain",
    ]
    assert [_cell(value) for value in ("\t=1", " =1", "a\nb", -5, -0.5, None, "")] == [
        "'\\x09=1",
        "' =1",
        "a\\x0ab",
        -5,
        -0.5,
        None,
        "",
    ]
