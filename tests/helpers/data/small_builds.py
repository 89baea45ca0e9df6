"""Builds of small buckets, which must succeed."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.processes.command_line import Run

SMALL = ("--capacity", "2048", "--max-seq-len", "512", "--split", "valid=0.2,test=0.1")


def build(run: Run, source: Path | list[Path], out: Path, *options: object, **sizes: int) -> str:
    """Run a build, which must succeed; return its output."""
    inputs = source if isinstance(source, list) else [source]
    small = SMALL[:4] if "--split" in options else SMALL
    done = run("preprocess", *inputs, "--out", out, *small, *options, **sizes)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
