"""Run an append process, and return its outcome."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pipeline.service.children.append_request import AppendRequest, Outcome
from pipeline.service.children.run_child import run_child
from pipeline.service.event_log import log
from pipeline.service.stop_signal import StopSignal
from schemas.python_environment import python_environment

_MODULE = "pipeline.service.children.append_process"


@dataclass(slots=True)
class AppendChild:
    """One run of an append process.

    on_stage: called with the name of each stage when it begins
    seconds: duration of each stage
    ending: exit code, and the last lines of standard error
    """

    on_stage: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)
    ending: str = ""
    _outcome: Outcome | None = None
    _stage: tuple[str, float] | None = None
    _errors: deque[str] = field(default_factory=lambda: deque(maxlen=5))

    def run(self, request: AppendRequest, stop: StopSignal) -> Outcome | None:
        """Return the outcome; None if the process ended without one.

        Raises:
            StopRequestedError: the service must stop, and the append was interrupted.
        """
        self._begin("start")
        code = run_child(
            [sys.executable, "-m", _MODULE],
            stop=stop,
            on_line=self._read,
            on_error_line=self._read_error,
            request=msgspec.json.encode(request) + b"\n",
            environment=python_environment(),
        )
        self._begin(None)
        self.ending = "; ".join([f"code {code}", *self._errors])
        return self._outcome

    def _read(self, line: str) -> None:
        try:
            found: dict[str, Any] = json.loads(line)
            event = found["event"]
        except (ValueError, KeyError, TypeError):
            log("output", text=line)
            return
        if event == "phase":
            self._begin(found["name"])
        elif event == "note":
            log("note", text=found["text"])
        elif event != "progress":
            self._outcome = msgspec.json.decode(line, type=Outcome)

    def _read_error(self, line: str) -> None:
        self._errors.append(line)
        log("warning", text=line)

    def _begin(self, stage: str | None) -> None:
        """End the current stage, and begin another."""
        now = time.monotonic()
        if self._stage is not None:
            name, since = self._stage
            self.seconds[name] = self.seconds.get(name, 0.0) + now - since
        self._stage = None if stage is None else (stage, now)
        if stage is not None:
            self.on_stage(stage)
