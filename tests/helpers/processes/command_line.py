"""Functions that run `thdpack` in tests.

| function | process | use it to test |
|---|---|---|
| `run_here` | the test's process, ten times as fast | files and output of a command |
| `run_process` | a new process | workers, signals, locks, memory, exit codes |
| `start` of started.py | a fork | commands that a test kills, signals or runs concurrently |
"""

from __future__ import annotations

import io
import logging
import multiprocessing.forkserver
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, Self, TextIO
from unittest import mock

import pytest
from fsspec.registry import registry

import pipeline.executors.processes
from pipeline.cli.main import run_command
from pipeline.executors.executor import OnBytes, TaskT, Work
from pipeline.storage.interrupt import INTERRUPTED

REPO = Path(__file__).parents[3]
PIECE_BYTES = 1_000
"""Size of a piece of an input in bytes, in builds of many small tasks. A piece is the unit in which
a build divides an input into tasks."""

Run = Callable[..., "subprocess.CompletedProcess[str]"]

_EXECUTORS = (
    "pipeline.build.array_jobs.run_listed",
    "pipeline.build.verify.verify_dataset",
    "pipeline.executors.processes",  # must be last, because the other modules import its class
)
"""Modules that start worker processes."""
_QUIET = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""Warnings that Python does not show by default."""
_THREADS_END_SECONDS = 20.0
"""Time limit for the threads of a command that has returned. Most threads end earlier."""


def environment() -> dict[str, str]:
    """Return this process's environment variables, with a fixed width and no colours for output."""
    return {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}


class InThisProcess:
    """Executor that runs tasks one after another in this process."""

    tasks_at_once = 0

    def __init__(self, workers: int) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def end(self) -> None:
        pass

    def run(
        self,
        work: Work[TaskT, Any],
        tasks: Sequence[TaskT],
        on_outcome: Callable[[int, Any], None],
        on_bytes: OnBytes,
        *,
        more: Iterator[TaskT | None] | None = None,
    ) -> None:
        assert more is None
        for i, task in enumerate(tasks):
            on_outcome(i, work(task, on_bytes, durable=False))


def small_tasks(
    *,
    task_bytes: int | None = None,
    partition_bytes: int | None = None,
    section_bytes: int | None = None,
) -> dict[str, int]:
    """Return values for constants of the pipeline, by the constant's name. With these values, a
    build has many small tasks.

    Args:
        section_bytes: size of the sections into which a build with several workers cuts the text of
            an archive.
    """
    sections = {
        "pipeline.build.unpack_stage.sections.SECTION_BYTES": section_bytes,
        "pipeline.build.unpack_stage.sections.STEP_BYTES": 5_000,
        "pipeline.build.unpack_stage.large_archives.LEAST_BYTES": 1,
        "pipeline.build.unpack_stage.large_archives.FEWEST_WORKERS": 1,
        "pipeline.inputs.unpack.parallel_archive.FEWEST_GZIP_THREADS": 1,
    }
    return {
        **({} if section_bytes is None else sections),
        "pipeline.inputs.find.TASK_BYTES": task_bytes or 128 << 20,
        "pipeline.inputs.find.PIECE_BYTES": PIECE_BYTES,
        "pipeline.inputs.find.FEWEST_TASKS": 1,
        "pipeline.build.build_plan.PARTITION_BYTES": partition_bytes or 64 << 20,
        "pipeline.build.stages.RESTS_TOGETHER": 4,
    }


def use_few_small_tasks(patch: pytest.MonkeyPatch) -> None:
    """Patch constants so that builds in this process divide 100 kB of input into a few tasks and
    partitions.
    """
    for name, value in small_tasks(task_bytes=60_000, partition_bytes=60_000).items():
        if not name.endswith("RESTS_TOGETHER"):
            patch.setattr(name, value)


def command(*arguments: str, setup: str = "", **sizes: int) -> list[str]:
    """Return the command line of `thdpack …`.

    Args:
        setup: Python statement to run first.
        sizes: arguments of `small_tasks`.
    """
    if not sizes and not setup:
        return [sys.executable, "-m", "pipeline", *arguments]
    return [sys.executable, "-c", program(setup, sizes), *arguments]


def program(setup: str, sizes: dict[str, int]) -> str:
    """Return Python source code that runs `thdpack`. The arguments are those of `command`."""
    settings = small_tasks(**sizes) if sizes else {}
    lines = [setup, *(f"{name} = {value}" for name, value in settings.items())]
    text = """
if __name__ == "__main__":
    import pipeline.build.build_plan, pipeline.inputs.find, pipeline.build.stages
    import pipeline.build.unpack_stage.map_inputs
    {}
    from pipeline.cli.main import main
    main()
"""
    return text.format("\n    ".join(lines))


def without_workers() -> None:
    """Make builds in this process run their tasks in this process instead of in workers."""
    pipeline.executors.processes.preload = lambda *more: None
    for module in _EXECUTORS:
        import_module(module).ProcessExecutor = InThisProcess  # type: ignore[attr-defined]


def run_process(
    *arguments: object,
    stdin: bytes | None = None,
    timeout: float = 120,
    setup: str = "",
    **sizes: int,
) -> subprocess.CompletedProcess[str]:
    """Run `thdpack` in a new process, and wait for its end; see `command`."""
    done = subprocess.run(
        command(*map(str, arguments), setup=setup, **sizes),
        cwd=REPO,
        input=stdin,
        capture_output=True,
        timeout=timeout,
        env=environment(),
        check=False,
    )
    said = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, *said)


def run_here(
    *arguments: object,
    stdin: bytes | None = None,
    timeout: float = 120,
    where: Path = REPO,
    **sizes: int,
) -> subprocess.CompletedProcess[str]:
    """Run `thdpack` in this process, and then undo its changes to the process.

    Without `--workers`, tasks run in this process too. A command that uses Ray runs in a new
    process. `timeout` applies only to such a command; pytest's own time limit ends other tests.

    Args:
        where: the command's current folder.
    """
    words = [str(argument) for argument in arguments]
    if "ray" in words:
        return run_process(*words, stdin=stdin, timeout=timeout, **sizes)
    out, errors = _text("strict"), _text("backslashreplace")
    with (
        pytest.MonkeyPatch.context() as patch,
        mock.patch.dict(os.environ, environment()),
        _fresh_process(),
        _threads_ended(),
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        patch.chdir(where)
        patch.setattr(sys, "argv", ["thdpack", *words])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin or b"")))
        for name, value in small_tasks(**sizes).items() if sizes else ():
            patch.setattr(name, value)
        if "--workers" not in words:
            patch.setattr("pipeline.executors.processes.preload", lambda *more: None)
            for module in _EXECUTORS:
                patch.setattr(f"{module}.ProcessExecutor", InThisProcess)
        code = run_command(words)
    if code == 130:  # the user pressed Ctrl-C: no test interrupts this process
        raise KeyboardInterrupt
    said = [file.buffer.getvalue().decode() for file in (out, errors)]
    return subprocess.CompletedProcess(["thdpack", *words], code, *said)


def preprocess(source: Path, out: Path, *options: str, **sizes: int) -> Path:
    """Build a dataset in this process, and return `out`."""
    done = run_here("preprocess", source, "--out", out, *options, **sizes)
    assert done.returncode == 0, done.stderr
    return out


def _text(errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True)


@contextmanager
def _fresh_process() -> Iterator[None]:
    """Hide state that a new process would not have. Afterwards restore this state, and remove the
    state that the command has created.
    """
    root = logging.getLogger()
    # hide pytest's handlers: without a handler, logging writes warnings to standard error
    handlers, root.handlers = root.handlers, []
    _forget_stores()
    try:
        with warnings.catch_warnings():
            warnings.resetwarnings()
            for kind in _QUIET:
                warnings.simplefilter("ignore", kind)
            warnings.showwarning = _show_warning
            yield
    finally:
        root.handlers = handlers
        INTERRUPTED.clear()
        _forget_stores()
        # stop the fork server, because it keeps the environment variables that it was started with
        multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    text = warnings.formatwarning(message, category, filename, lineno, line)
    print(text, file=sys.stderr, end="")


def _forget_stores() -> None:
    """Drop the stores' cached listings and the list of uploaded objects. Keep connections open."""
    for kind in registry.values():
        for system in kind._cache.values():
            system.invalidate_cache()
    objects = sys.modules.get("pipeline.storage.object_folder")
    if objects is not None:
        objects._just_written.clear()


@contextmanager
def _threads_ended() -> Iterator[None]:
    """When the context ends, wait for the threads that the command started."""
    before = set(threading.enumerate())
    yield
    for thread in threading.enumerate():
        if thread not in before and thread.name.startswith("thdpack"):
            thread.join(_THREADS_END_SECONDS)
            assert not thread.is_alive(), f"{thread.name} did not end with its command"
