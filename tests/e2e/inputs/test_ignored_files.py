"""`--ignore` leaves out files of folders and globs. Errors about such files suggest this option."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.build.build_plan import plan, plan_digest
from pipeline.build.options import PreprocessOptions
from pipeline.inputs.find import find_sources
from schemas.errors import InputError
from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.processes.command_line import Run

PROTEINS = b">a\nMKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQ\n>b\nMKVLAWQRE\n"
DNA = b">chr1\n" + b"ACGTTGCA" * 99 + b"\n"
FILES = ("x.fa", "y.fa", "old/x.fa", "sub/z.fa", "sub/old/w.fa")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        file = tmp_path / "in" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(PROTEINS.replace(b">", b">" + name.encode()))
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("patterns", "kept"),
    [
        (("x.fa",), ("sub/old/w.fa", "sub/z.fa", "y.fa")),
        (("/x.fa",), ("old/x.fa", "sub/old/w.fa", "sub/z.fa", "y.fa")),
        (("old",), ("sub/z.fa", "x.fa", "y.fa")),
        (("old/",), ("sub/z.fa", "x.fa", "y.fa")),
        (("/old",), ("sub/old/w.fa", "sub/z.fa", "x.fa", "y.fa")),
        (("sub/*.fa",), ("old/x.fa", "sub/old/w.fa", "x.fa", "y.fa")),
        (("[xy].fa", "w*"), ("sub/z.fa",)),
    ],
)
def test_a_pattern_matches_the_last_parts_of_a_path_below_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, patterns: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    monkeypatch.chdir(folder)
    # the folder's own name never matches
    for named in (str(folder), f"{folder}/", "../in", ".", f"file://{folder}"):
        found, skipped = find_sources(
            (named,), "auto", spool=None, ignore=(*patterns, *patterns[:1])
        )
        root = f"file://{folder}" if "://" in named else named
        names = sorted(
            source.url.removeprefix(f"{root.rstrip('/')}/").removeprefix("./") for source in found
        )
        assert names == list(kept)
        assert sum("--ignore" in each.line for each in skipped) == 1


def test_ignore_applies_to_globs_and_folders_but_not_to_a_file_given_by_name(folder: Path) -> None:
    found, _ = find_sources((f"{folder}/**/*.fa",), "auto", spool=None, ignore=("old", "x.fa"))
    assert [source.name for source in found] == ["sub/z.fa", "y.fa"]
    named = (f"{folder}/z.fa", f"{folder}/sub")
    (folder / "z.fa").write_bytes(PROTEINS)
    found, _ = find_sources(named, "auto", spool=None, ignore=("z.fa",))
    assert [source.name for source in found] == ["z.fa", "sub/old/w.fa"]


def test_ignoring_a_file_of_a_folder_gives_the_same_dataset_as_naming_all_other_files(
    run: Run, tmp_path: Path, folder: Path
) -> None:
    others = [folder / name for name in FILES if name != "old/x.fa"]
    assert run("preprocess", *sorted(others), "--out", tmp_path / "named").returncode == 0
    done = run("preprocess", folder, "--ignore", "old/x.fa", "--out", tmp_path / "found")
    assert done.returncode == 0, done.stderr
    assert f"skipped {folder}: old/x.fa: --ignore" in done.stderr
    assert digest(tmp_path / "found") == digest(tmp_path / "named")


def test_the_plan_depends_on_the_files_and_not_on_the_patterns_that_select_them(
    folder: Path,
) -> None:
    digests = set()
    named = ("old", "old/*", "[os]*/x.fa", "old/x.fa")
    for name, ignore in ((".", ("[wyz].fa", "/x.fa")), *((name, ()) for name in named)):
        options = PreprocessOptions(inputs=(f"{folder}/{name}",), out="x", ignore=ignore)
        digests.add(plan_digest(options, plan(options)))
    assert len(digests) == 1


def test_a_pattern_that_ignores_nothing_or_everything_is_an_error(folder: Path) -> None:
    with pytest.raises(InputError, match=r"--ignore '\*.dna': matches no file"):
        find_sources((str(folder),), "auto", spool=None, ignore=("x.fa", "*.dna"))
    with pytest.raises(InputError, match=r"x\.fa: matches no file"):
        find_sources((f"{folder}/x.fa",), "auto", spool=None, ignore=("x.fa",))
    with pytest.raises(InputError, match="--ignore leaves out every sequence file"):
        find_sources((str(folder),), "auto", spool=None, ignore=("*.fa",))


def test_a_pattern_that_matches_only_skipped_files_is_accepted(
    run: Run, tmp_path: Path, folder: Path
) -> None:
    (folder / "genome.fna").write_bytes(DNA)
    (folder / "gone.fa").symlink_to("nowhere")
    words = ("--ignore", "genome.fna", "--ignore", "gone.fa", "--out", tmp_path / "out")
    done = run("preprocess", folder, *words)
    assert done.returncode == 0, done.stderr
    with pytest.raises(InputError, match="genome: matches no file"):
        find_sources((str(folder),), "auto", spool=None, ignore=("genome.fna", "genome"))


def test_an_empty_pattern_is_refused(run: Run, tmp_path: Path, folder: Path) -> None:
    done = run("preprocess", folder, "--out", tmp_path / "out", "--ignore", "/")
    assert done.returncode == 2
    assert "--ignore '/' is not a pattern" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    "content",
    [DNA, b"no FASTA\n", b">a\n", b">a\n" + b"1" * 99 + b"\n", b">a\nMKT\x00\n"],
    ids=["nucleotides", "text", "no residue", "unknown letters", "binary"],
)
def test_the_error_about_a_file_found_in_a_folder_suggests_the_option_ignore(
    run: Run, tmp_path: Path, folder: Path, content: bytes
) -> None:
    odd = folder / "sub" / "an [odd].fa"
    odd.write_bytes(content)
    words = ("--out", tmp_path / "out")
    remedy = "; to leave this file out, give --ignore 'an [[]odd].fa'"
    for named in (folder, f"{folder}/*/a*.fa"):
        done = run("preprocess", named, *words)
        assert done.returncode == 1
        assert remedy in done.stderr
    assert "--ignore" not in run("preprocess", odd, *words).stderr
    done = run("preprocess", folder, *words, "--ignore", "an [[]odd].fa")
    assert done.returncode == 0, done.stderr


def test_stats_and_plan_tasks_leave_out_ignored_files(
    run: Run, tmp_path: Path, folder: Path
) -> None:
    done = run("stats", folder, "--ignore", "[xyw].fa")
    assert "2 input records" in done.stdout, done.stderr
    out = tmp_path / "out"
    assert run("plan-tasks", folder, "--out", out, "--ignore", "[xyw].fa").returncode == 0
    for stage in ("map", "reduce"):
        assert run("run-task", out, "--stage", stage, "--index", "0").returncode == 0
    done = run("commit", out)
    assert "records in  2" in done.stdout, done.stderr
    refused = run("stats", out, "--ignore", "x.fa")
    assert refused.returncode == 2
    assert "--ignore is for raw sequences only" in refused.stderr


def test_one_error_names_all_files_that_cannot_be_read_and_the_options_that_leave_them_out(
    run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "good.fasta").write_bytes(fasta(made_records(30)))
    (folder / "dna.fasta").write_text(">d\n" + "ACGT" * 50 + "\n")
    (folder / "empty.fa").touch()
    (folder / "other.fa").write_text(">d\n" + "GATTACA" * 50 + "\n")
    done = run("preprocess", folder, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert f"{folder}/dna.fasta: looks like nucleotides" in done.stderr
    assert "; 2 other files cannot be read either: empty.fa, other.fa; to leave" in done.stderr
    options = done.stderr.partition("to leave these files out, give ")[2].split()
    assert options == ["--ignore", "dna.fasta", "--ignore", "empty.fa", "--ignore", "other.fa"]
    assert run("preprocess", folder, "--out", tmp_path / "out", *options).returncode == 0
