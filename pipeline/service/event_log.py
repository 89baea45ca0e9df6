"""The log of the service on standard output: JSON objects, one per line, or text for a terminal."""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any, Final

from pipeline.report.render.printable import printable
from schemas.text.phrases import plural
from schemas.text.redact import without_credentials

_LOCK = threading.Lock()
_JSON_ONLY: Final = ("stage", "finished", "empty", "output", "stopped")
"""Events that a terminal does not show."""


class _Format:
    as_text = False


def choose_format(*, as_json: bool) -> None:
    """Print text from now on if standard output is a terminal, unless `as_json` is True."""
    _Format.as_text = not as_json and sys.stdout.isatty()


def log(event: str, **values: Any) -> None:
    """Print an event with its time. Credentials are removed from its texts."""
    shown = {
        name: without_credentials(value) if isinstance(value, str) else value
        for name, value in values.items()
    }
    if _Format.as_text:
        if event not in _JSON_ONLY:
            log_text(_text(event, shown))
        return
    now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
    with _LOCK:
        print(json.dumps({"time": now, "event": event, **shown}), flush=True)


def log_text(text: str) -> None:
    """Print a line on a terminal. Print nothing if the log is JSON."""
    if _Format.as_text:
        with _LOCK:
            print(printable(text).replace("\n", " "), flush=True)


def _text(event: str, values: dict[str, Any]) -> str:
    """Return an event as a line of text."""
    match event:
        case "started":
            return f"watching {values['inbox']} for {values['dataset']}"
        case "no files":
            more = "" if values["once"] else "; it will be checked again until the service ends"
            return f"{values['inbox']} has no files{more}"
        case "batch":
            return f"appending {plural(values['files'], 'file')} ({values['bytes'] / 1e6:,.1f} MB)"
        case "committed":
            return (
                f"appended {plural(values['files'], 'file')} as generation "
                f"{values['generation']}: {plural(values['records'], 'record')}, "
                f"{values['kept']:,} kept"
            )
        case "unchanged":
            return "appended nothing: the dataset has the content of all files already"
        case "duplicate":
            return f"duplicate {values['file']}: same content as {values['duplicate_of']}"
        case "rejected" | "released" | "not moved":
            return f"{event} {values['file']}: {values['reason']}"
        case "waiting":
            return f"waiting: {values['reason']}"
        case "error":
            return f"error: {values['reason']}; trying again in {values['again_in_seconds']:g} s"
        case "note" | "warning":
            return f"{event}: {values['text']}"
    return f"{event}: " + ", ".join(f"{name} {value}" for name, value in values.items())
