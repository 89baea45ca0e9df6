"""Functions that damage files, and the word in thdpack's errors for each kind of damage."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.helpers.processes.command_line import Run


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 10)


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = {
    "flipped": (flip, "damaged"),
    "cut": (cut, "truncated"),
    "empty": (empty, "truncated"),
    "gone": (Path.unlink, "missing"),
}


def run_and_damage(
    run_process: Run, out: Path, steps: Iterable[tuple[str, int | None, tuple[str, ...]]]
) -> None:
    """Run tasks of a task list, and flip a bit of some work files after each step.

    Each step runs in a new process, because a process reads joined clusters only once.

    Args:
        steps: stage, index of a task (None: all tasks of the stage), and names of work files.
    """
    for stage, index, names in steps:
        which = ("--index", 0, "--array-size", 1) if index is None else ("--index", index)
        done = run_process("run-task", out, "--stage", stage, *which)
        assert done.returncode == 0, done.stderr
        for name in names:
            (path,) = (out / ".build").glob(f"{name}.arrow")
            flip(path)
