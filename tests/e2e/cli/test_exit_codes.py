"""Wrong usage gives one line and exit code 2, as docs/reference/cli.md says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.build.filters.where import where
from pipeline.executors.ray_connection import import_ray
from schemas.errors import OptionError
from schemas.text.phrases import install_command
from tests.helpers.processes.command_line import REPO, Run, environment, preprocess
from tests.helpers.processes.ranks import TRAIN, Job


@pytest.fixture(scope="module")
def dataset(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return preprocess(sample, tmp_path_factory.mktemp("codes") / "dataset")


def refused(run: Run, *words: object) -> str:
    """Run a command that must exit with 2, and return the one line that it prints."""
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    [line] = done.stderr.splitlines()
    return line.partition(": ")[2]


def in_new_process(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "thdpack", *map(str, words)],
        cwd=REPO,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--bucket 99999", "no bucket 99999 in train; it has "),
        ("--bucket 0 --split test", "no bucket 0 in test: this split is empty"),
    ],
)
def test_a_bucket_that_does_not_exist_is_wrong_usage(
    run: Run, dataset: Path, words: str, said: str
) -> None:
    assert refused(run, "inspect", dataset, *words.split()).startswith(said)


def test_an_input_named_twice_is_wrong_usage(run: Run, sample: Path, tmp_path: Path) -> None:
    said = refused(run, "preprocess", sample, sample, "--out", tmp_path / "d")
    assert said.startswith(f"{sample}: named twice among the inputs")


def test_a_file_in_place_of_a_folder_and_the_reverse_are_wrong_usage(
    run: Run, sample: Path, dataset: Path, tmp_path: Path
) -> None:
    file = tmp_path / "README.md"
    file.write_text("mine")
    assert refused(run, "preprocess", sample, "--out", file) == (
        f"{file} is a file, expected the dataset's folder"
    )
    assert refused(run, "stats", dataset, "--csv", file) == (
        f"--csv {file} is a file, expected a folder: choose a new folder"
    )
    assert refused(run, "stats", dataset, "--json", tmp_path) == (
        f"--json {tmp_path} is a folder, expected a file: {tmp_path}/FILE"
    )
    assert file.read_text() == "mine"


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_the_folder_of_a_run_must_not_be_a_file(
    dataset: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "README.md"
    file.touch()
    with Job(TRAIN, ["esm2-tiny", "--data", str(dataset), "--out", str(file), *words]) as job:
        code = job.wait()
    said = f"--out {file} is a file, expected the run's folder: choose another --out"
    assert (code, job.said) == (2, f"thdpack train: {said}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--index 99",
            "--index 99 is beyond the 1 map + 1 reduce tasks of this plan: the last index is 1",
        ),
        (
            "--index 0 --stage link",
            "this plan has no link tasks (only with --clusters or --sample-clusters): continue "
            "with --stage reduce",
        ),
        (
            "--index 0 --stage draw",
            "this plan has no draw tasks (only with --sample-clusters): continue with --stage "
            "reduce",
        ),
    ],
)
def test_a_task_that_the_plan_lacks_is_wrong_usage(
    run: Run, sample: Path, tmp_path: Path, words: str, said: str
) -> None:
    out = tmp_path / "out"
    assert run("plan-tasks", sample, "--out", out).returncode == 0
    assert refused(run, "run-task", out, *words.split()) == f"{out}: {said}"


def test_options_that_do_not_suit_the_dataset_are_wrong_usage(
    run: Run, sample: Path, dataset: Path
) -> None:
    for dry in ((), ("--dry-run",)):
        words = ("preprocess", sample, "--out", dataset, "--capacity", 4096, *dry)
        assert refused(run, *words).startswith(
            f"{dataset}: holds another dataset (--capacity 16384 → 4096); choose another --out"
        )


@pytest.mark.parametrize("command", ["inspect", "verify", "stats", "bench-reader", "train"])
def test_a_generation_that_does_not_exist_is_wrong_usage(
    run: Run, dataset: Path, tmp_path: Path, command: str
) -> None:
    said = f"{dataset}: no generation 99; the dataset has only generation 1"
    if command != "train":
        assert refused(run, command, dataset, "--generation", 99) == said
        return
    words = ["esm2-tiny", "--data", str(dataset), "--out", str(tmp_path / "run")]
    with Job(TRAIN, [*words, "--generation", "99"]) as job:
        code = job.wait()
    assert (code, job.said) == (2, f"thdpack train: {said}\n")


def test_a_store_whose_package_is_not_installed_is_wrong_usage_with_one_remedy(
    run: Run, sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s3fs.py").write_text("raise ImportError")
    words = ("preprocess", sample, "--out", "s3://bucket/dataset")
    done = in_new_process(*words, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "thdpack preprocess: s3://bucket/dataset: cannot open s3://, which needs the extra s3: "
        f"{install_command('s3')}\n"
    )
    monkeypatch.setitem(sys.modules, "adlfs", None)  # imports of this module fail
    assert refused(run, "preprocess", sample, "--out", "az://container/dataset") == (
        "az://container/dataset: cannot open az://, which needs the package adlfs: "
        "pip install adlfs"
    )


def test_a_missing_extra_is_wrong_usage(
    run: Run, sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where.cache_clear()
    for module in ("polars", "ray"):
        monkeypatch.setitem(sys.modules, module, None)  # imports of this module fail
    said = refused(run, "preprocess", sample, "--out", tmp_path / "d", "--where", "length > 9")
    assert said.startswith("--where needs polars: ")
    with pytest.raises(OptionError, match=r"^--executor ray needs Ray \("):
        import_ray(None)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--clusters", "mmseqs:50", "--clusters mmseqs:50: expected a table of clusters, or mms"),
        ("--clusters", "mmseqs:0.5", "--clusters mmseqs:… needs MMseqs2, which was not found: "),
        ("--exclude", "mmseqs:x.fa", "--exclude mmseqs:… needs MMseqs2, which was not found: "),
    ],
)
def test_without_mmseqs_a_wrong_identity_still_gives_the_error_about_its_range(
    run: Run,
    sample: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    value: str,
    said: str,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(run, "preprocess", sample, "--out", tmp_path / "d", option, value).startswith(
        said
    )


@pytest.mark.parametrize("option", ["--sequence-column", "--id-column"])
def test_the_name_of_a_column_is_refused_if_no_input_is_a_table(
    run: Run, sample: Path, tmp_path: Path, option: str
) -> None:
    for words in ((), ("--dry-run",)):
        out = tmp_path / "d"
        said = refused(run, "preprocess", sample, "--out", out, option, "x", *words)
        assert said.startswith(f"{option} names a column of a table, but no input is one (found: f")
        assert not out.exists()
