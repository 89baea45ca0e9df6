"""Inputs that users name are read, or are refused or skipped with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.inputs.find import find_sources
from pipeline.inputs.named.expand import refuse_inside
from schemas.errors import InputError
from tests.helpers.data.corpus import read_records
from tests.helpers.processes.command_line import REPO, Run, environment

FASTA = b">a\nMKTAYI\n>b\nMKVLA\n"


def refused(run: Run, *arguments: object, code: int = 1) -> str:
    """Return the one-line error of a command."""
    done = run(*arguments)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with one FASTA file."""
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "x.fasta").write_bytes(FASTA)
    return inside


def test_an_empty_name_is_refused_and_not_taken_for_the_current_folder(
    run: Run, tmp_path: Path
) -> None:
    sample = REPO / "data" / "sample.fasta"
    assert "an empty name among the inputs" in refused(
        run, "preprocess", "", "--out", tmp_path / "out"
    )
    assert "an empty name among the inputs" in refused(
        run, "preprocess", sample, "", "--out", tmp_path / "out"
    )
    said = refused(run, "preprocess", sample, "--out", "", code=2)
    assert "--out is empty: is a shell variable unset?" in said
    assert not (REPO / "manifest.json").exists()
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_skipped_entries_of_an_input_folder_are_named(
    run: Run, tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "y.fasta").write_bytes(FASTA)
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "gone.fasta").symlink_to(tmp_path / "nothing.fasta")
    (folder / "file.fasta").symlink_to(tmp_path / "elsewhere" / "y.fasta")
    os.mkfifo(folder / "pipe.fasta")
    words = ("preprocess", folder, "--out", tmp_path / "out", "--dedup", "none")
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert {row["source"] for row in read_records(tmp_path / "out")} == {"x.fasta", "file.fasta"}
    assert f"skipped {folder}/linked: a link to a folder" in done.stderr
    assert f"skipped {folder}/gone.fasta: a broken link" in done.stderr
    assert f"skipped {folder}/pipe.fasta: a pipe" in done.stderr
    dry = run(*words, "--dry-run").stdout
    assert f"skipped  {folder}/linked: a link to a folder" in dry


def test_the_error_for_a_folder_that_contains_only_a_link_gives_the_reason(
    run: Run, tmp_path: Path, folder: Path
) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    (outer / "linked").symlink_to(folder)
    assert f"{outer}/linked: a link to a folder" in refused(
        run, "preprocess", outer, "--out", tmp_path / "out"
    )


def test_a_folder_that_cannot_be_read_is_an_error(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate the error, because root may read every folder."""
    (folder / "closed").mkdir()
    scandir = os.scandir

    def closed(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(InputError, match="closed: cannot be read: Permission denied"):
        find_sources((str(folder),), "auto", spool=None)


def test_a_name_that_is_not_utf8_is_refused_before_anything_is_read(
    run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    odd = os.fsencode(folder) + b"/caf\xe9.fasta"
    Path(os.fsdecode(odd)).write_bytes(FASTA)
    for named in (folder, os.fsdecode(odd), f"{folder}/*.fasta"):
        said = refused(run, "preprocess", named, "--out", tmp_path / "out")
        assert f"{folder}/caf\\xe9.fasta: its name is not UTF-8" in said
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_parent_folder_whose_name_is_not_utf8_is_accepted(run: Run, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    (folder / "x.fasta").write_bytes(FASTA)
    (folder / "notes.txt").write_bytes(b"")
    done = run("preprocess", folder, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "caf\\xe9: notes.txt: not named like" in done.stderr


@pytest.mark.parametrize("nested", ["", "data", "../in/data", "a/b"])
def test_a_dataset_inside_an_input_folder_is_refused(run: Run, folder: Path, nested: str) -> None:
    out = f"{folder}/{nested}"
    for command in (("preprocess",), ("plan-tasks",), ("preprocess", "--dry-run")):
        said = refused(run, *command, folder, "--out", out)
        assert f"{folder}: the dataset's folder (--out) is inside this input" in said
    (folder.parent / "list").write_text(f"{folder}\n")
    assert "is inside this input" in refused(
        run, "preprocess", f"@{folder.parent / 'list'}", "--out", out
    )
    (folder.parent / "link").symlink_to(folder)
    assert "is inside this input" in refused(
        run, "preprocess", folder.parent / "link", "--out", out
    )
    assert [path.name for path in folder.iterdir()] == ["x.fasta"]


def test_a_dataset_beside_an_input_is_built(run: Run, folder: Path) -> None:
    assert run("preprocess", folder, "--out", f"{folder}-data").returncode == 0
    assert run("preprocess", folder / "x.fasta", "--out", folder / "data").returncode == 0


def test_a_pipe_is_refused_and_the_error_suggests_standard_input(run: Run, tmp_path: Path) -> None:
    """Opening the pipe would wait forever, because no process writes to it."""
    os.mkfifo(tmp_path / "x.fasta")
    said = refused(run, "preprocess", tmp_path / "x.fasta", "--out", tmp_path / "out")
    assert f"{tmp_path}/x.fasta: a pipe, not a file; pass its output as standard input" in said


def test_a_process_substitution_is_refused_as_an_input_and_read_as_a_list(
    tmp_path: Path, folder: Path
) -> None:
    thdpack = f"{sys.executable} -m pipeline preprocess --workers 1 --out {tmp_path / 'out'}"
    for prefix, content, code, message in (
        ("", f"cat {folder}/x.fasta", 1, "a pipe, not a file"),
        ("@", f"echo {folder}/x.fasta", 0, ""),
    ):
        script = f'build() {{ {thdpack} "{prefix}$1"; }}; build <({content})'
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=REPO,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_a_dataset_below_an_input_prefix_on_an_object_store_is_refused() -> None:
    for text, out in (
        ("s3://b/in", "s3://b/in/out"),
        ("s3://b/in/", "s3://b/in"),
        ("s3://b", "s3://b/x/y"),
    ):
        with pytest.raises(InputError, match="is inside this input"):
            refuse_inside(out, (text,))
    for text, out in (
        ("s3://b/in", "s3://b/inside"),
        ("s3://b/in/x.fasta", "s3://b/in"),
        ("in", "s3://b/in"),
    ):
        refuse_inside(out, (text,))


def test_the_error_for_inputs_joined_by_commas_says_how_to_separate_them(
    run: Run, tmp_path: Path
) -> None:
    names = [tmp_path / name for name in ("a.fasta", "b.fasta")]
    for name in names:
        name.write_bytes(b">a\nMKT\n")
    for text in (",".join(map(str, names)), ", ".join(map(str, names)), f"{names[0]},"):
        done = run("preprocess", text, "--out", tmp_path / "out")
        assert done.returncode == 2
        assert "no such file; separate inputs by spaces, not by commas" in done.stderr
