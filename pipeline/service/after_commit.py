"""After a commit: write the report of the generation, and run the hook of --on-generation.

A failure of either is logged and counted, and changes nothing else.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pipeline.service.children.run_child import run_child
from pipeline.service.errors import StopRequestedError
from pipeline.service.event_log import log
from pipeline.service.journal.ledger import Commit, Ledger
from pipeline.service.options import WatchOptions
from pipeline.service.reports import make_folder, remove_old_report, report_url
from pipeline.service.status import Board
from pipeline.service.stop_signal import StopSignal
from schemas.errors import ThdpackError
from schemas.python_environment import python_environment

_HOOK_SECONDS: Final = 600.0
_REPORT_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class AfterCommit:
    """Writes the report and runs the hook after a commit."""

    options: WatchOptions
    board: Board
    stop: StopSignal
    ledger: Ledger

    def report(self, commit: Commit) -> bool:
        """Write the report of a generation. Return True if an error occurred."""
        url = report_url(self.options.dataset, commit.generation)
        command = [sys.executable, "-m", "pipeline", "stats", self.options.dataset, "--html", url]
        errors: list[str] = []
        with self._timed("report"):
            try:
                make_folder(self.options.dataset)
                code = run_child(
                    command,
                    stop=self.stop,
                    on_line=lambda line: None,
                    on_error_line=errors.append,
                    environment=python_environment(),
                    most_seconds=_REPORT_SECONDS,
                )
                remove_old_report(self.options.dataset, commit.generation)
            except (OSError, ThdpackError) as error:
                code, errors = 1, [str(error)]
        self._refuse_stopping()
        if code:
            log("report failed", generation=commit.generation, output=errors[-5:])
            self._remember(f"the report of generation {commit.generation} failed", errors)
        return bool(code)

    def hook(self, commit: Commit) -> bool:
        """Run the command of --on-generation. Return True if the command failed."""
        assert self.options.on_generation is not None
        said: list[str] = []
        environment = {
            "THDPACK_DATASET": self.options.dataset,
            "THDPACK_GENERATION": str(commit.generation),
            "THDPACK_DIGEST": commit.digest,
        }
        with self._timed("hook"):
            try:
                code = run_child(
                    self.options.on_generation,
                    stop=self.stop,
                    on_line=said.append,
                    on_error_line=said.append,
                    environment={**os.environ, **environment},
                    most_seconds=_HOOK_SECONDS,
                )
            except OSError as error:
                code, said = 1, [str(error)]
        event = "hook failed" if code else "hook"
        log(event, generation=commit.generation, code=code, output=said[-20:])
        if code:
            self._remember(f"--on-generation ended with code {code}", said)
        return bool(code)

    def _remember(self, what: str, lines: list[str]) -> None:
        """Show an error that does not stop the service."""
        status = self.board.get()
        text = f"{what}: {lines[-1]}" if lines else what
        self.board.change(last_error=text, last_error_time=time.time(), errors=status.errors + 1)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        totals = self.ledger.totals
        seconds = time.monotonic() - started
        totals.stage_seconds[stage] = totals.stage_seconds.get(stage, 0.0) + seconds
        totals.stage_count[stage] = totals.stage_count.get(stage, 0) + 1

    def _refuse_stopping(self) -> None:
        if self.stop.requested.is_set():
            raise StopRequestedError()
