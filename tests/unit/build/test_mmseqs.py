"""MMseqs2 runs as a child process that ends with its parent, and its errors are shown."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.build.mmseqs.run import run_mmseqs, scratch_folder
from pipeline.storage.local_folder import LocalFolder
from schemas.errors import BuildError
from tests.conftest import REPO, Run

SHELL = shutil.which("sh") or "/bin/sh"
RUN_A_CHILD_OF_A_CHILD = """
import sys
from pathlib import Path
from pipeline.build.mmseqs.run import run_mmseqs
here = Path(sys.argv[1])
script = f"sleep 600 & echo $! > {here}/new; mv {here}/new {here}/pid; wait"
run_mmseqs("sh", ["-c", script], here)
"""
GIVE_UP_SECONDS = 60


def alive(pid: int) -> bool:
    """Return whether a process runs. A zombie, which has ended, does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(path: Path) -> int:
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while not path.exists():
        assert time.monotonic() < give_up
        time.sleep(0.01)
    return int(path.read_text())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc does not exist")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_mmseqs_and_its_children_end_with_the_process_that_started_them(
    tmp_path: Path, number: signal.Signals
) -> None:
    words = [sys.executable, "-c", RUN_A_CHILD_OF_A_CHILD, str(tmp_path)]
    with subprocess.Popen(words, cwd=REPO, stderr=subprocess.DEVNULL) as process:
        child = wait_for(tmp_path / "pid")
        assert alive(child)
        os.kill(process.pid, number)
        process.wait(GIVE_UP_SECONDS)
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while alive(child):
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_an_error_of_mmseqs_is_shown(tmp_path: Path) -> None:
    with pytest.raises(
        BuildError, match=r"-c failed with exit code 3: one \| two; remove the cause"
    ):
        run_mmseqs(SHELL, ["-c", "echo one; echo two >&2; echo; exit 3"], tmp_path)
    with pytest.raises(BuildError, match="exit code 137"):
        run_mmseqs(SHELL, ["-c", "kill -KILL $$"], tmp_path)
    with pytest.raises(BuildError, match="the cause"):
        run_mmseqs(SHELL, ["-c", "echo not this; exit 1"], tmp_path, {"not this": "the cause"})


def test_a_scratch_folder_begins_empty_and_is_removed(tmp_path: Path) -> None:
    work = LocalFolder(tmp_path, tmp_path)
    left = tmp_path / "thdpack-mmseqs-task" / "left by a killed run"
    left.mkdir(parents=True)
    with scratch_folder(work, "task") as scratch:
        assert not list(scratch.iterdir())
        (scratch / "file").touch()
    assert not list(tmp_path.iterdir())


def test_missing_mmseqs_is_an_error_before_anything_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, test_set = tmp_path / "x.fasta", tmp_path / "test.fasta"
    source.write_text(">a\nMKV\n")
    test_set.write_text(">t\nMKVA\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    for options in (["--exclude", f"mmseqs:{test_set}"], ["--clusters", "mmseqs:0.5"]):
        done = run("preprocess", source, "--out", tmp_path / "out", *options)
        assert done.returncode == 2
        assert (
            f"{options[0]} mmseqs:… needs MMseqs2, which was not found: install it" in done.stderr
        )
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_task_lists_refuse_mmseqs(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "x.fasta"
    source.write_text(">a\nMKV\n")
    done = run("plan-tasks", source, "--out", tmp_path / "out", "--exclude", "mmseqs:test.fasta")
    assert done.returncode == 2
    assert "a task list cannot contain mmseqs:test.fasta" in done.stderr
