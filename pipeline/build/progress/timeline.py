"""The times at which the phases and tasks of a build ran, and the file of --timeline.

The file has the Trace Event Format of Chromium, which https://ui.perfetto.dev opens. Each worker
process is a row. A phase is a group of tasks that do not depend on each other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pipeline.storage.urls import is_url
from schemas.errors import BuildError, OptionError


@dataclass(frozen=True, slots=True)
class Span:
    """A period of work.

    worker: process id and host of the process that worked
    began, ended: seconds since 1970
    cpu: seconds of CPU time of the process
    """

    worker: str
    began: float
    ended: float
    cpu: float


@dataclass(slots=True)
class PhaseTimes:
    """Times of a phase.

    bytes: number of bytes that the tasks read; 0 if it is not known
    began, ended: seconds since 1970
    tasks: name and span of each task
    skipped: number of tasks that an earlier run finished
    """

    name: str
    bytes: int
    began: float
    ended: float = 0.0
    tasks: list[tuple[str, Span]] = field(default_factory=list)
    skipped: int = 0

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def rate(self) -> float | None:
        """Bytes read per second; None if their number is not known."""
        known = self.bytes and not self.skipped and self.seconds > 0
        return self.bytes / self.seconds if known else None


@cache
def this_worker() -> str:
    """Return the name of this process: its id and its host."""
    return f"{os.getpid()} on {os.uname().nodename}"


def check_timeline(path: str) -> None:
    """Check, before a build, that the file of --timeline can be written.

    Raises:
        OptionError: the path is a URL or a folder, or its folder does not exist.
    """
    if is_url(path):
        raise OptionError(f"--timeline {path}: a URL, expected a path on a local disk")
    if os.path.isdir(path):
        raise OptionError(f"--timeline {path}: a folder, expected a file, such as timeline.json")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise OptionError(f"--timeline {path}: the folder {folder} does not exist: create it")


def write_timeline(path: Path, phases: Sequence[PhaseTimes]) -> None:
    """Write the file of --timeline.

    Raises:
        BuildError: the file cannot be written.
    """
    try:
        path.write_text(
            json.dumps({"traceEvents": list(_events(phases)), "displayTimeUnit": "ms"}) + "\n"
        )
    except OSError as error:
        raise BuildError(
            f"--timeline {path}: cannot be written ({error.strerror}); the build itself is not "
            "affected: run the same command with another file to resume"
        ) from error


def _events(phases: Sequence[PhaseTimes]) -> Iterator[dict[str, object]]:
    """Yield the events of a timeline. Times are microseconds since the first phase began."""
    start = min((phase.began for phase in phases), default=0.0)
    rows: dict[str, int] = {}
    yield _row_name(0, "phases")
    for phase in phases:
        yield _event(0, phase.name, phase.began - start, phase.seconds, {"bytes": phase.bytes})
        for name, span in phase.tasks:
            if span.worker not in rows:
                rows[span.worker] = len(rows) + 1
                yield _row_name(rows[span.worker], f"worker {span.worker}")
            cpu = {"phase": phase.name, "cpu_seconds": round(span.cpu, 3)}
            yield _event(rows[span.worker], name, span.began - start, span.ended - span.began, cpu)


def _row_name(row: int, name: str) -> dict[str, object]:
    return {"name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": {"name": name}}


def _event(
    row: int, name: str, began: float, seconds: float, args: dict[str, object]
) -> dict[str, object]:
    """Return an event: a box in a row. `began` is relative to the start of the timeline."""
    times = {"ts": round(1e6 * began), "dur": round(1e6 * seconds)}
    return {"name": name, "ph": "X", "pid": 1, "tid": row, **times, "args": args}
