"""Run a task again if a file that the task wrote was damaged later.

A work file is a file that one task writes for later tasks. Examples are a spill (records from a map
task) and a rest (sequences that did not fill a bucket). A marker is a file that says that a task
has finished.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from pipeline.build.progress.reporter import Reporter
from pipeline.build.tasks import writer_of
from pipeline.storage.folder import Folder
from schemas.errors import DamagedSpillError

ATTEMPTS: Final = 4
"""Maximum number of attempts. If all of them fail, the disk or memory is probably broken."""

T = TypeVar("T")


def mended(
    work: Callable[[], T], run_again: Callable[[str], None], folder: Folder, report: Reporter
) -> T:
    """Return the result of `work`. If `work` finds a damaged work file, rerun the task that wrote
    the file, then retry `work`.

    Args:
        run_again: function that reruns the task with a given name. The task's marker is removed
            before the call. If `work` runs every task that has no marker, the function may do
            nothing.
        folder: folder of the work files.
    Raises:
        DamagedSpillError: `work` found a damaged file in every attempt.
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
                f"{folder.where(error.name)} is not what was written: "
                "a disk, memory or another program changed the file; "
                f"the task {writer_of(error.name)} runs again"
            )
            damaged.append(writer_of(error.name))
            folder.remove(f"{damaged[-1]}.json")
    raise AssertionError("unreachable")
