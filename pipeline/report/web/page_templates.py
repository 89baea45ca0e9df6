"""Jinja2 environment of the pages that a server shows: escaping, filters, and the common style."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.report.render.printable import printable
from schemas.text.phrases import plural
from schemas.text.redact import without_credentials

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def page_templates(folder: Path) -> Environment:
    """Return an environment with the templates of a folder, and with `base.css` of this package.

    Jinja2 escapes every name that comes from a file.
    """
    environment = Environment(
        loader=FileSystemLoader([folder, Path(__file__).with_name("templates")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "ago": _ago,
        "clock": _clock,
        "number": "{:,}".format,
        "plain": plain,
        "plural": plural,
        "seconds": _seconds,
        "size": size,
    }
    return environment


def plain(text: str) -> str:
    """Return text in one line, without credentials, and with codes for control characters."""
    return printable(without_credentials(text).replace("\n", "\\n").replace("\r", "\\r"))


def size(count: float) -> str:
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
