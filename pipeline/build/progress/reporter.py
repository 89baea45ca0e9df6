"""Show the progress of a build: as a bar on a terminal, as plain lines, or as JSON objects."""

from __future__ import annotations

import json
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from schemas.text.byte_size import megabytes

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PLAIN_SECONDS = 10.0
_NAME_WIDTH: Final = 34
_NUMBERS_WIDTH: Final = 35
"""Columns of a bar's longest numbers: `250.9/250.9 MB 250.9 MB/s 0:00:00`, with two spaces."""


class Reporter(Protocol):
    """Interface of the classes that show the progress of a build."""

    def phase(self, name: str, total_bytes: int) -> None:
        """Begin a phase. `total_bytes` is the approximate number of bytes to read, 0 if unknown."""

    def advance(self, done_bytes: int) -> None:
        """Add `done_bytes`, the number of bytes that were read since the last call."""

    def note(self, text: str, **values: Any) -> None:
        """Show a line of text. JSON output also holds `values`."""


def reporter(*, as_json: bool) -> AbstractContextManager[Reporter]:
    """Return a context manager that yields a reporter for JSON, a terminal or plain text."""
    if as_json:
        return nullcontext(JsonReporter())
    return TerminalReporter() if sys.stderr.isatty() else nullcontext(PlainReporter())


def progress_text(done_bytes: int, total_bytes: int, seconds: float) -> str:
    """Return the progress of a phase that began `seconds` (> 0) ago.

    total_bytes: number of bytes to read; 0 if it is not known
    """
    if not total_bytes:
        return f"running, {seconds:.0f} s so far"
    rate = done_bytes / seconds
    left = max(total_bytes - done_bytes, 0) / rate if rate else 0
    share = min(100.0, 100 * done_bytes / total_bytes)
    return f"{share:.0f} %, {rate / 1e6:.0f} MB/s, about {left:.0f} s left"


class PlainReporter:
    """Prints a line on standard error when a phase begins, and then about every ten seconds."""

    def phase(self, name: str, total_bytes: int) -> None:
        self._name, self._total, self._done = name, total_bytes, 0
        self._started = self._said = time.monotonic()
        size = f" ({megabytes(total_bytes)})" if total_bytes else ""
        print(f"{name}{size}", file=sys.stderr, flush=True)

    def advance(self, done_bytes: int) -> None:
        self._done += done_bytes
        now = time.monotonic()
        if now - self._said >= _PLAIN_SECONDS:
            self._said = now
            state = progress_text(self._done, self._total, now - self._started)
            print(f"{self._name}: {state}", file=sys.stderr, flush=True)

    def note(self, text: str, **values: Any) -> None:
        print(text, file=sys.stderr, flush=True)


class JsonReporter:
    """Prints one JSON object per line on standard output.

    The key `event` has the value "phase", "progress" or "note". The key `time` is in ISO 8601, UTC.
    """

    def phase(self, name: str, total_bytes: int) -> None:
        self._name, self._total, self._done, self._said = name, total_bytes, 0, time.monotonic()
        self._say("phase", name=name, total_bytes=total_bytes)

    def advance(self, done_bytes: int) -> None:
        self._done += done_bytes
        if time.monotonic() - self._said >= 1.0:
            self._said = time.monotonic()
            self._say("progress", name=self._name, done_bytes=self._done, total_bytes=self._total)

    def note(self, text: str, **values: Any) -> None:
        self._say("note", text=text, **values)

    def _say(self, event: str, **values: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        print(json.dumps({"time": now, "event": event, **values}), flush=True)


class TerminalReporter:
    """Shows a progress bar with the rate and the remaining time."""

    _bar: Progress
    _task: TaskID | None = None

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.table import Column

        console = Console(stderr=True)
        bar_width = max(4, min(40, console.width - _NAME_WIDTH - _NUMBERS_WIDTH))
        name = Column(
            no_wrap=True,
            overflow="ellipsis",
            max_width=max(_NAME_WIDTH, console.width - bar_width - _NUMBERS_WIDTH),
        )
        columns = (
            TextColumn(f"{{task.description:<{_NAME_WIDTH}}}", table_column=name),
            BarColumn(bar_width),
            DownloadColumn(table_column=Column(no_wrap=True)),
            TransferSpeedColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
        )
        self._bar = Progress(*columns, console=console)
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._finish()
        self._bar.stop()

    def phase(self, name: str, total_bytes: int) -> None:
        self._finish()
        self._task = self._bar.add_task(name, total=total_bytes or None)

    def _finish(self) -> None:
        if self._task is not None:
            task = self._bar.tasks[self._task]
            total = task.total or task.completed or 1
            self._bar.update(self._task, total=total, completed=total)

    def advance(self, done_bytes: int) -> None:
        if done_bytes and self._task is not None:
            self._bar.advance(self._task, done_bytes)

    def note(self, text: str, **values: Any) -> None:
        self._bar.console.print(text, highlight=False, markup=False)
