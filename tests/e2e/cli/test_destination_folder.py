"""A build refuses a folder that holds files of the user, as `git clone` does."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import Run


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "made.fasta"
    path.write_bytes(fasta(made_records(30)))
    return path


@pytest.mark.parametrize(
    "command", [("preprocess",), ("preprocess", "--dry-run"), ("plan-tasks",)], ids=" ".join
)
def test_a_folder_of_other_files_is_refused_and_stays_as_it_is(
    run: Run, corpus: Path, command: tuple[str, ...]
) -> None:
    folder = corpus.parent
    (folder / ".git").mkdir()
    (folder / "train").mkdir()
    (folder / "train" / "cats.jpg").touch()
    before = sorted(folder.rglob("*"))
    done = run(command[0], corpus, "--out", folder, *command[1:])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"thdpack {command[0]}: --out {folder} is neither empty nor a dataset (it holds .git, "
        f"made.fasta, train): choose a new folder, such as {folder}/dataset\n"
    )
    assert sorted(folder.rglob("*")) == before


def test_a_folder_that_holds_only_the_inputs_is_refused(run: Run, corpus: Path) -> None:
    done = run("preprocess", corpus.name, "--out", ".", where=corpus.parent)
    assert done.returncode == 2
    assert "--out . is neither empty nor a dataset (it holds made.fasta): choose" in done.stderr
    assert [path.name for path in corpus.parent.iterdir()] == [corpus.name]


def test_an_empty_folder_a_dataset_and_what_builds_leave_behind_are_accepted(
    run: Run, corpus: Path
) -> None:
    out = corpus.parent / "empty"
    (out / "lost+found").mkdir(parents=True)
    assert run("preprocess", corpus, "--out", out).returncode == 0
    assert "already built" in run("preprocess", corpus, "--out", out).stdout
    (out / "README.md").write_text("notes of the user about this dataset")
    assert run("preprocess", corpus, "--out", out, "--seed", "1", "--overwrite").returncode == 0
    (out / "README.md").unlink()
    (out / "manifest.json").unlink()  # only shards and records/ files are left
    assert run("preprocess", corpus, "--out", out, "--seed", "1").returncode == 0
    assert run("verify", out, "--deep").returncode == 0


def test_an_unfinished_build_is_accepted(run: Run, corpus: Path) -> None:
    out = corpus.parent / "planned"
    assert run("plan-tasks", corpus, "--out", out).returncode == 0
    (out / "job.log").touch()
    assert run("preprocess", corpus, "--out", out).returncode == 0


def test_a_failed_build_names_the_files_that_it_leaves(run: Run, corpus: Path) -> None:
    (headers := corpus.parent / "headers.fasta").write_bytes(b">a\n>b\n")
    out = corpus.parent / "out"
    done = run("preprocess", corpus, headers, "--out", out)  # the user may replace one of the files
    assert done.returncode == 1
    error, note = done.stderr.splitlines()[-2:]
    assert error.startswith(f"thdpack preprocess: {headers}:2: no residue in this file; FASTA has")
    assert note.startswith(f"unfinished files of this build: {out}/.build/. To discard the build")
    earlier = {path.name for path in (out / ".build").iterdir()}
    again = run("preprocess", headers, "--out", out)  # does not remove an earlier build's files
    assert f"unfinished files of this build: {out}/.build/" in again.stderr
    assert earlier <= {path.name for path in (out / ".build").iterdir()}


NOTHING_KEPT = "no record was kept (30 "


@pytest.mark.parametrize(
    ("content", "words", "said"),
    [
        (b" \n\n ", "", ":3: no residue in this file"),
        (b">a\n>b\n", "", ":2: no residue in this file"),
        (gzip.compress(b"", mtime=0), "", ": the file is empty after decompression"),
        (None, "--min-residues 9999999", NOTHING_KEPT),
        (None, "--where length>9999999", NOTHING_KEPT),
    ],
)
def test_a_build_that_cannot_succeed_leaves_nothing(
    run: Run, corpus: Path, content: bytes | None, words: str, said: str
) -> None:
    if content is not None:
        corpus.write_bytes(content)
    new, old = corpus.parent / "new" / "out", corpus.parent / "old"
    old.mkdir()
    for out in (new, old):
        done = run("preprocess", corpus, "--out", out, *words.split())
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith("thdpack preprocess: ")
        assert said in done.stderr.splitlines()[-1]
    assert not new.parent.exists()
    assert list(old.iterdir()) == []


def test_a_build_that_cannot_succeed_keeps_the_files_of_an_earlier_dataset(
    run: Run, corpus: Path
) -> None:
    out = corpus.parent / "out"
    assert run("preprocess", corpus, "--out", out).returncode == 0
    (out / "records" / "0123456789abcdef-00000.parquet").touch()  # left behind by an earlier build
    (out / "records" / "notes.txt").touch()
    before = sorted(out.rglob("*"))
    done = run("preprocess", corpus, "--out", out, "--min-residues", "9999999", "--overwrite")
    assert NOTHING_KEPT in done.stderr.splitlines()[-1]
    assert sorted(out.rglob("*")) == before
    assert run("verify", out, "--deep").returncode == 0


def test_a_failed_build_without_results_leaves_nothing(run: Run, corpus: Path) -> None:
    empty, out = corpus.parent / "empty.fasta", corpus.parent / "out"
    empty.touch()
    done = run("preprocess", empty, "--out", out)
    assert (done.returncode, done.stderr) == (
        1,
        f"thdpack preprocess: {empty}: the file is empty; write or download it again\n",
    )
    assert not out.exists()


def test_a_misspelt_input_is_not_taken_for_the_new_dataset(run: Run, tmp_path: Path) -> None:
    words = ("preprocess", "missing.fasta", "--out", "o_missing_fasta")
    done = run(*words, where=tmp_path)
    assert done.stderr == (
        "thdpack preprocess: missing.fasta: no such file; the current folder is "
        f"{tmp_path.resolve()}\n"
    )
    (tmp_path / "missin.fasta").touch()
    again = run(*words, where=tmp_path)
    assert again.stderr.endswith("missing.fasta: no such file; did you mean missin.fasta?\n")


def test_a_dataset_in_an_input_folder_is_skipped_with_a_note(run: Run, corpus: Path) -> None:
    inside = corpus.parent / "sets" / "one"
    assert run("preprocess", corpus, "--out", inside).returncode == 0
    out = corpus.parent.parent / f"{corpus.parent.name}-whole"
    done = run("preprocess", corpus.parent, "--out", out)
    assert done.returncode == 0, done.stderr
    assert f"skipped {inside}: a thdpack dataset, not an input\n" in done.stderr
    ignored = run("preprocess", corpus.parent, "--out", out, "--ignore", "sets/")
    assert ignored.returncode == 0, ignored.stderr  # the pattern counts as used
