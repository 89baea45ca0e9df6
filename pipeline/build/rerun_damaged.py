"""What a build does when a work file between two tasks was changed after it was written: the task that wrote it runs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from pipeline.build.progress import Reporter
from pipeline.build.tasks import writer_of
from pipeline.storage.folder import Folder
from schemas.errors import DamagedSpillError

ATTEMPTS: Final = 4
"""A disk or memory that changes more than this is not worth a fifth."""

T = TypeVar("T")


def mended(
    work: Callable[[], T], run_again: Callable[[str], None], folder: Folder, report: Reporter
) -> T:
    """What `work` gives; where it finds a damaged spill or rest, the task that wrote it runs again, and then `work` does.

    Args:
        run_again: run the task of this name, unless `work` itself does; its marker is gone by then.
        folder: of the work in progress.
    Raises:
        DamagedSpillError: files are damaged faster than they are written.
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
                f"{error.name} is not what was written: a disk, memory or another program changed it; {writer_of(error.name)} runs again"
            )
            damaged.append(writer_of(error.name))
            folder.remove(f"{damaged[-1]}.json")
    raise AssertionError("unreachable")
