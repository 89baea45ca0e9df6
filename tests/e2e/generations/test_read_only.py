"""Commands that write to an existing dataset name a remedy if its folder is read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.processes.command_line import Run, preprocess


@pytest.fixture
def read_only(run: Run, sample: Path, tmp_path: Path) -> Iterator[Path]:
    """A dataset on a file system that is read-only; `planned`, beside it, has a task list. Skip the
    test if this user may not mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a file system")
    shutil.copytree(preprocess(sample, tmp_path / "dataset"), disk / "dataset")
    assert run("plan-tasks", sample, "--out", disk / "planned").returncode == 0
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    yield disk / "dataset"
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_the_remedy_for_a_read_only_dataset_suits_the_command(
    run: Run, read_only: Path, sample: Path, tmp_path: Path
) -> None:
    (more := tmp_path / "more.fasta").write_bytes(fasta(made_records(3)))
    before, planned = digest(read_only), read_only.parent / "planned"
    refused = f"cannot write to {read_only}: Read-only file system; make the folder writable, or "
    for words, said in (
        (("append", read_only, more), f"{refused}use a copy of the dataset"),
        (("compact", read_only, sample), f"{refused}use a copy of the dataset"),
        (("gc", read_only, "--grace", "0", "--delete"), f"{refused}use a copy of the dataset"),
        (
            ("run-task", planned, "--index", "0"),
            f"cannot write to {planned}: Read-only file system; make the folder writable, or run "
            "`thdpack plan-tasks` again with another --out",
        ),
        (
            ("card", read_only),
            f"cannot write {read_only}/croissant.json: Read-only file system; name another folder "
            "with --out",
        ),
        (
            ("preprocess", sample, "--out", read_only.parent / "new"),
            f"cannot write to {read_only.parent}/new: Read-only file system; choose another --out",
        ),
    ):
        done = run(*words)
        assert (done.returncode, done.stderr) == (1, f"thdpack {words[0]}: {said}\n")
    assert digest(read_only) == before


@pytest.fixture
def lock() -> Iterator[Callable[[Path], None]]:
    """A function that makes a file or folder immutable, even for root. Skip the test if this user
    may not do that."""
    locked: list[str] = []

    def make_immutable(path: Path) -> None:
        if (
            not shutil.which("chattr")
            or subprocess.run(["chattr", "+i", path], check=False).returncode
        ):
            pytest.skip("only root can make a file immutable")
        locked.append(str(path))

    yield make_immutable
    for path in locked:
        subprocess.run(["chattr", "-i", path], check=True)


def test_gc_names_a_file_that_it_cannot_remove(
    run: Run, sample: Path, tmp_path: Path, lock: Callable[[Path], None]
) -> None:
    dataset = preprocess(sample, tmp_path / "dataset")
    unnamed = dataset / "train" / "0123456789abcdef-00000-0.arrow"
    unnamed.touch()
    lock(unnamed)
    done = run("gc", dataset, "--grace", "0", "--delete")
    said = f"thdpack gc: cannot remove {unnamed}: Operation not permitted; make its folder writable"
    assert (done.returncode, done.stderr.startswith(said)) == (1, True)


def test_an_append_names_a_folder_in_which_it_cannot_write(
    run: Run, sample: Path, tmp_path: Path, lock: Callable[[Path], None]
) -> None:
    dataset = preprocess(sample, tmp_path / "dataset")
    (more := tmp_path / "more.fasta").write_bytes(fasta(made_records(3)))
    lock(dataset / "train")
    done = run("append", dataset, more)
    assert done.returncode == 1
    said = (
        ": Operation not permitted; make its folder writable, then run the same command to resume"
    )
    assert done.stderr.endswith(f"{said}\n")
    assert f"cannot write {dataset}/train/" in done.stderr
