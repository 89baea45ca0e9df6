"""The status page: what the service does, the queue, the last generations, rejected files.

The page has no script and loads no other file. It loads itself again every few seconds. Jinja2
escapes every name that comes from a file.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.report.render.printable import printable
from pipeline.service.status import Status
from schemas import __version__
from schemas.text.phrases import plural
from schemas.text.redact import without_credentials

REFRESH_SECONDS: Final = 5
_GENERATIONS_SHOWN: Final = 20
_REJECTIONS_SHOWN: Final = 50
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def status_page(status: Status) -> str:
    """Return the page as HTML."""
    return (
        _environment()
        .get_template("status.html.jinja")
        .render(
            status=status,
            generations=tuple(reversed(status.generations))[:_GENERATIONS_SHOWN],
            rejections=tuple(reversed(status.rejections))[:_REJECTIONS_SHOWN],
            version=__version__,
            refresh=REFRESH_SECONDS,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "ago": _ago,
        "clock": _clock,
        "number": "{:,}".format,
        "plain": _plain,
        "plural": plural,
        "seconds": _seconds,
        "size": _size,
    }
    return environment


def _plain(text: str) -> str:
    """Return text in one line, without credentials, and with codes for control characters."""
    return printable(without_credentials(text).replace("\n", "\\n").replace("\r", "\\r"))


def _size(count: float) -> str:
    """Return a number of bytes, such as 3.2 MB."""
    unit = 0
    while count >= 999.95 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:.1f} {_UNITS[unit]}" if unit else f"{count:.0f} B"


def _seconds(count: float) -> str:
    """Return a duration, such as 3 min."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if count >= 2 * size:
            return f"{count / size:.0f} {unit}"
    return f"{count:.0f} s"


def _ago(when: float) -> str:
    return f"{_seconds(max(0.0, time.time() - when))} ago"


def _clock(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))
