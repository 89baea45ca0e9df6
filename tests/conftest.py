"""Shared fixtures: where the real data is, and ways to build datasets and to run the command as users do."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

import pipeline.build
from pipeline.folders import Folder
from pipeline.markers import Outcome, run_once
from pipeline.options import PreprocessOptions
from pipeline.progress import reporter
from pipeline.tasks import Task
from schemas.manifest import Manifest

REPO = Path(__file__).parents[1]
SHARED = REPO.parent / "shared" / "data"

Run = Callable[..., "subprocess.CompletedProcess[str]"]
OurThreads = Callable[[], list[threading.Thread]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real corpora beside the checkout; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("../shared/data is not here")
    return SHARED


@pytest.fixture(scope="session")
def sample() -> Path:
    return REPO / "data" / "sample.fasta"


PIECE_BYTES = 1_000
"""Of inputs, in builds of many small tasks."""


def command(*arguments: str, task_bytes: int | None = None, partition_bytes: int | None = None) -> list[str]:
    """`thdpack …` as a command line; with sizes, a build in many small tasks instead of one."""
    if task_bytes is None and partition_bytes is None:
        return [sys.executable, "-m", "pipeline", *arguments]
    program = f"""
import sys
if __name__ == "__main__":
    import pipeline.plan, pipeline.sources, pipeline.stages
    pipeline.sources.TASK_BYTES, pipeline.sources.PIECE_BYTES, pipeline.sources.FEWEST_TASKS = {task_bytes or 128 << 20}, {PIECE_BYTES}, 1
    pipeline.plan.PARTITION_BYTES = {partition_bytes or 64 << 20}
    pipeline.stages.RESTS_TOGETHER = 4
    from pipeline.cli import main
    main()
"""
    return [sys.executable, "-c", program, *arguments]


def preprocess(source: Path, out: Path, *options: str, **sizes: int) -> Path:
    """Build a dataset for several tests, in a process of its own; `out`."""
    arguments = command("preprocess", str(source), "--out", str(out), *options, **sizes)
    subprocess.run(arguments, cwd=REPO, env=environment(), check=True, capture_output=True)
    return out


class InThisProcess:
    """An executor without processes, for tests of what is read and written rather than of what runs it: ten times as fast."""

    def __init__(self, workers: int, out: Folder) -> None:
        self._out = out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def end(self) -> None:
        pass

    def run(self, tasks: Sequence[Task], on_outcome: Callable[[int, Outcome], None], on_bytes: Callable[[int], None]) -> None:
        for i, task in enumerate(tasks):
            on_outcome(i, run_once(task, self._out, on_bytes))


@pytest.fixture
def build_here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Manifest]:
    """Build a dataset in this process: `build_here(input, out, **options)`."""
    monkeypatch.setattr(pipeline.build, "ProcessExecutor", InThisProcess)

    def build_it(source: Path, out: Path, **options: Any) -> Manifest:
        with reporter(as_json=False) as report:
            return pipeline.build.build(PreprocessOptions(inputs=(str(source),), out=str(out), **options), report).manifest

    return build_it


@pytest.fixture
def run() -> Run:
    """Run `thdpack` to its end in a process of its own."""

    def run_it(*arguments: object, stdin: bytes | None = None, timeout: float = 120, **sizes: int) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command(*map(str, arguments), **sizes), cwd=REPO, input=stdin, capture_output=True, timeout=timeout, env=environment(), check=False
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run_it


@pytest.fixture
def our_threads() -> OurThreads:
    """Asks which threads of thdpack there are that were not there when the test began: others may have left some waiting for a store."""
    earlier = set(threading.enumerate())
    return lambda: [thread for thread in threading.enumerate() if thread.name.startswith("thdpack") and thread not in earlier]


@pytest.fixture(scope="session")
def many_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of about 240 buckets in about 20 shards, as `thdpack preprocess` builds it. Not to be changed: copy it."""
    from tests.corpus import fasta, made_records

    folder = tmp_path_factory.mktemp("many_shards")
    (folder / "made.fasta").write_bytes(fasta(made_records(1600, longest=150)))
    return preprocess(folder / "made.fasta", folder / "dataset", "--capacity", "512", "--max-seq-len", "256", partition_bytes=4000)


@pytest.fixture(scope="session")
def whole(many_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted training run of one process on many_shards. Not to be changed: copy it."""
    from tests.runs import train

    return train(many_shards, tmp_path_factory.mktemp("whole") / "run")


def environment() -> dict[str, str]:
    """Ours, with output that does not depend on a terminal."""
    return {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
