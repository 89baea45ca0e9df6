"""Find a table's column by its name."""

from __future__ import annotations

from collections.abc import Sequence


def column_named(wanted: str, names: Sequence[str]) -> str | None:
    """Return the column with this name.

    If no column has exactly this name, compare names without case and surrounding blanks. Return
    None if no column matches, or if several columns match.
    """
    if wanted in names:
        return wanted
    close = [name for name in names if name.strip().casefold() == wanted.strip().casefold()]
    return close[0] if len(close) == 1 else None
