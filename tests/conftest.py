"""Shared fixtures: where the real data is, and ways to build datasets and to run the command as users do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
SHARED = REPO.parent / "shared" / "data"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real corpora beside the checkout; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("../shared/data is not here")
    return SHARED


@pytest.fixture(scope="session")
def sample() -> Path:
    return REPO / "data" / "sample.fasta"


def command(*arguments: str, task_bytes: int | None = None, partition_bytes: int | None = None) -> list[str]:
    """`thdpack …` as a command line; with sizes, a build in many small tasks instead of one."""
    if task_bytes is None and partition_bytes is None:
        return [sys.executable, "-m", "pipeline", *arguments]
    program = f"""
import sys
if __name__ == "__main__":
    import pipeline.build, pipeline.plan, pipeline.sources
    pipeline.sources.TASK_BYTES = {task_bytes or 128 << 20}
    pipeline.plan.PARTITION_BYTES = {partition_bytes or 64 << 20}
    pipeline.build.RESTS_TOGETHER = 4
    from pipeline.cli import main
    main()
"""
    return [sys.executable, "-c", program, *arguments]


@pytest.fixture
def run() -> Run:
    """Run `thdpack` to its end in a process of its own."""

    def run_it(*arguments: object, stdin: bytes | None = None, timeout: float = 120, **sizes: int) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command(*map(str, arguments), **sizes), cwd=REPO, input=stdin, capture_output=True, timeout=timeout, env=environment(), check=False
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run_it


@pytest.fixture(scope="session")
def many_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of about 240 buckets in about 20 shards, as `thdpack preprocess` builds it. Not to be changed: copy it."""
    from tests.corpus import fasta, made_records

    folder = tmp_path_factory.mktemp("many_shards")
    (folder / "made.fasta").write_bytes(fasta(made_records(1600, longest=150)))
    built = ("preprocess", str(folder / "made.fasta"), "--out", str(folder / "dataset"), "--capacity", "512", "--max-seq-len", "256")
    subprocess.run(command(*built, partition_bytes=4000), cwd=REPO, env=environment(), check=True, capture_output=True)
    return folder / "dataset"


def environment() -> dict[str, str]:
    """Ours, with output that does not depend on a terminal."""
    return {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
