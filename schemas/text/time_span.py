"""Spans of time, written as text such as 30m, 12h or 7d."""

from __future__ import annotations

import math
from typing import Final

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_span(span: str, *, name: str) -> float:
    """Return the seconds of a span such as `90s`, `30m`, `12h`, `7d`, `2w` or `0`.

    Args:
        name: name of the option, for the error.
    Raises:
        ValueError: `span` is not a span of time, has no unit, or is negative.
    """
    text = span.strip()
    try:
        found = 0.0 if text == "0" else float(text[:-1]) * _UNITS[text[-1:]]
    except (KeyError, ValueError):
        found = -1.0
    if not 0 <= found < math.inf:
        raise ValueError(
            f"{name} {span!r} is not a span of time, expected something like 12h or 7d"
        )
    return found
