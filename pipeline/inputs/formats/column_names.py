"""Find a table's column by its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_IDS: Final = ("id", "entry", "accession")
"""Names of the id column that are tried in this order, if the user names none. UniProt's tables
have `Entry`."""


def column_named(wanted: str, names: Sequence[str]) -> str | None:
    """Return the column with this name.

    If no column has exactly this name, compare names without case and surrounding blanks. Return
    None if no column matches, or if several columns match.
    """
    if wanted in names:
        return wanted
    close = [name for name in names if name.strip().casefold() == wanted.strip().casefold()]
    return close[0] if len(close) == 1 else None


def first_column_named(wanted: Iterable[str], names: Sequence[str]) -> str | None:
    """Return the column with the first of these names that a column has; see `column_named`."""
    found = (column_named(name, names) for name in wanted)
    return next((name for name in found if name is not None), None)


def id_column_in(names: Sequence[str], wanted: str) -> str | None:
    """Return the column with the record ids.

    Args:
        wanted: value of --id-column. With the default, "id", other usual names are tried, too.
    """
    return first_column_named(_IDS if wanted == _IDS[0] else (wanted,), names)
