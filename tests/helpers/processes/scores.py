"""Runs of `thdpack score` for tests, and what they wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.helpers.processes.ranks import Job

SCORE: Final = "import sys; from trainer.score import main; main(sys.argv[1:])"


def score(*words: object, ranks: int = 1) -> str:
    """Run `thdpack score` with these arguments. Return its output."""
    return Job(SCORE, [str(word) for word in words], ranks=ranks).finish()


def refused(*words: object) -> tuple[int, str]:
    """Run a command that must fail. Return its exit code and its output."""
    with Job(SCORE, [str(word) for word in words]) as job:
        code = job.wait()
    assert code, job.said
    return code, job.said


def content(out: Path) -> dict[str, bytes]:
    """Return the content of each file, by name."""
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
