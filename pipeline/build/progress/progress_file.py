"""The file `.build/progress.json`, in which a build in a local folder writes how far it is.

`thdpack stats DATASET --serve` reads it. The file is written at the start of each phase, and then
at most once a second. It is not synced, and a build that cannot write it continues without it.
Builds in object stores write no such file, because each write would be a request.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from pipeline.storage.atomic_write import written_atomically
from schemas.errors import ThdpackError
from schemas.manifest import WORK
from schemas.untrusted_json import Count, decoded

PROGRESS_NAME: Final = "progress.json"
_SECONDS: Final = 1.0
_MOST_BYTES: Final = 4096


class BuildProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of the file.

    pid: id of the build's main process
    phase: name of the current phase, as the build prints it
    done_bytes, total_bytes: bytes of this phase; total_bytes is 0 if it is not known
    records: number of input records that the finished map tasks have read
    began, updated: start of the phase and time of the last write, in seconds since 1970
    """

    pid: Count
    phase: Annotated[str, Meta(max_length=300)]
    done_bytes: Count
    total_bytes: Count
    records: Count
    began: float
    updated: float


@dataclass(slots=True)
class ProgressFile:
    """Writes the progress of one build.

    work: the work folder; None to write nothing
    """

    work: Path | None
    records: int = 0
    _phase: str = ""
    _done: int = 0
    _total: int = 0
    _began: float = 0.0
    _written: float = 0.0

    def phase(self, name: str, total_bytes: int) -> None:
        """Begin a phase."""
        self._phase, self._done, self._total, self._began = name, 0, total_bytes, time.time()
        self._write()

    def advance(self, done_bytes: int) -> None:
        """Add the number of bytes that were read since the last call."""
        self._done += done_bytes
        if time.monotonic() - self._written >= _SECONDS:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        if self.work is None or not self.work.is_dir():
            return
        progress = BuildProgress(
            pid=os.getpid(),
            phase=self._phase,
            done_bytes=max(0, self._done),
            total_bytes=self._total,
            records=self.records,
            began=self._began,
            updated=time.time(),
        )
        # the build itself reports a full disk where it matters
        with (
            suppress(OSError, ThdpackError),
            written_atomically(self.work / PROGRESS_NAME, scratch=self.work, durable=False) as file,
        ):
            file.write(msgspec.json.encode(progress))


def read_progress(dataset: Path) -> BuildProgress | None:
    """Return the progress of the build in a dataset's folder; None if the file is missing or
    damaged."""
    try:
        with (dataset / WORK / PROGRESS_NAME).open("rb") as file:
            return decoded(file.read(_MOST_BYTES), BuildProgress)
    except (OSError, ValueError):
        return None
