"""Run a task again whose work file was damaged between its writing and its reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from pipeline.build.progress import Reporter
from pipeline.build.tasks import writer_of
from pipeline.storage.folder import Folder
from schemas.errors import DamagedSpillError

ATTEMPTS: Final = 4
"""A disk or memory that fails more often than this is broken."""

T = TypeVar("T")


def mended(
    work: Callable[[], T], run_again: Callable[[str], None], folder: Folder, report: Reporter
) -> T:
    """Return the result of `work`; after a damaged spill or rest, first run its writer again.

    Args:
        run_again: runs the task of this name, unless `work` does; its marker has been removed.
        folder: holds the work in progress.
    Raises:
        DamagedSpillError: files were damaged in each of the attempts.
    """
    damaged: list[str] = []
    for attempt in range(1, ATTEMPTS + 1):
        try:
            while damaged:
                run_again(damaged[-1])
                damaged.pop()
            return work()
        except DamagedSpillError as error:
            if attempt == ATTEMPTS:
                raise
            report.note(
                f"{error.name} is not what was written: "
                "a disk, memory or another program changed it; "
                f"{writer_of(error.name)} runs again"
            )
            damaged.append(writer_of(error.name))
            folder.remove(f"{damaged[-1]}.json")
    raise AssertionError("unreachable")
