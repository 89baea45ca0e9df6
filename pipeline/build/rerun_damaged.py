"""Run a task again if its work file was damaged after it was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from pipeline.build.progress import Reporter
from pipeline.build.tasks import writer_of
from pipeline.storage.folder import Folder
from schemas.errors import DamagedSpillError

ATTEMPTS: Final = 4
"""Most attempts. A disk or memory that fails more often is broken."""

T = TypeVar("T")


def mended(
    work: Callable[[], T], run_again: Callable[[str], None], folder: Folder, report: Reporter
) -> T:
    """Return the result of `work`. If it finds a damaged spill or rest, first run the task that
    wrote it.

    Args:
        run_again: runs the task of this name, whose marker has been removed, unless `work` runs it.
        folder: folder of the work files.
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
