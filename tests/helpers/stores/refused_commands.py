"""Commands that contact a store, and must fail immediately."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.helpers.processes.command_line import REPO, Run
from trainer.train import main


def refused(run: Run, *words: object, code: int = 1) -> str:
    """Run a command that must fail immediately; return its error, without the prefix."""
    began = time.monotonic()
    done = run(*words)
    assert done.returncode == code, done.stderr
    assert time.monotonic() - began < 20, "the command took 20 seconds or more"
    [line] = done.stderr.splitlines()
    return line.removeprefix(f"thdpack {words[0]}: ")


def training_refused(
    data: str, out: Path, capsys: pytest.CaptureFixture[str], *, code: int = 1
) -> str:
    """Start a training run that must fail immediately; return its error."""
    began = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        main(["esm2-8m", "--data", data, "--out", str(out)])
    assert ended.value.code == code
    assert time.monotonic() - began < 20, "the command took 20 seconds or more"
    [line] = capsys.readouterr().err.splitlines()
    return line


def readers_of(url: str, tmp_path: Path) -> list[tuple[object, ...]]:
    """Return command lines that contact a store: each reads a dataset or inputs there, or checks
    the destination of a build.
    """
    return [
        ("stats", url),
        ("stats", f"{url}/in.fasta"),
        ("plan", "--data", url),
        ("verify", url),
        ("inspect", url),
        ("bench-reader", url),
        ("run-task", url, "--index", 0),
        ("preprocess", f"{url}/in.fasta", "--out", tmp_path / "out"),
        ("preprocess", f"{url}/*.fasta", "--out", tmp_path / "out", "--dry-run"),
        ("preprocess", REPO / "data" / "sample.fasta", "--out", url, "--dry-run"),
        ("preprocess", f"@{url}/list", "--out", tmp_path / "out"),
    ]
