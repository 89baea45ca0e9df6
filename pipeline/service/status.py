"""The state of the service, as the status page and the metrics show it."""

from __future__ import annotations

import threading
import time
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.service.dataset_totals import DatasetTotals
from pipeline.service.journal.ledger import Commit, Ledger, Rejection, Totals


@dataclass(frozen=True, kw_only=True, slots=True)
class Queued:
    """A file that waits.

    since: Unix time of the file's last change, as the service first saw it
    settled: True if it is complete and waits for its batch
    """

    name: str
    bytes: int
    since: float
    settled: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Working:
    """The batch that is being appended.

    stage: the current stage
    """

    number: int
    files: int
    bytes: int
    since: float
    stage: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """A snapshot of the service.

    state: what the service does now, in a few words
    trouble: the error that makes the service repeat a step; "" if there is none
    last_error: the last error, even if the service works again
    oldest: Unix time of the last change of the oldest waiting file; None if none waits
    queue: the first waiting files; complete files come before the others
    """

    inbox: str
    dataset: str
    started: float
    state: str = "starting"
    trouble: str = ""
    last_error: str = ""
    last_error_time: float = 0.0
    errors: int = 0
    waiting_files: int = 0
    waiting_bytes: int = 0
    oldest: float | None = None
    queue: tuple[Queued, ...] = ()
    working: Working | None = None
    totals: Totals = field(default_factory=Totals)
    generations: tuple[Commit, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    totals_of_dataset: DatasetTotals | None = None

    @property
    def ready(self) -> bool:
        """True if the service can take files."""
        return not self.trouble and self.totals_of_dataset is not None

    @property
    def lag(self) -> float:
        """Age of the oldest waiting file in seconds; 0 if none waits."""
        return 0.0 if self.oldest is None else max(0.0, time.time() - self.oldest)


class Board:
    """Holds the latest status for other threads."""

    def __init__(self, status: Status) -> None:
        self._lock = threading.Lock()
        self._status = status

    def change(self, **values: Any) -> None:
        """Change some fields of the status."""
        with self._lock:
            self._status = replace(self._status, **values)

    def show_ledger(self, ledger: Ledger, **values: Any) -> None:
        """Show the totals, generations and rejected files of a ledger; change some other fields."""
        self.change(
            totals=deepcopy(ledger.totals),
            generations=tuple(ledger.generations),
            rejections=tuple(ledger.rejections),
            **values,
        )

    def get(self) -> Status:
        """Return the latest status."""
        with self._lock:
            return self._status
