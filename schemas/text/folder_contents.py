"""Say which files a folder holds, if they keep a command from writing into the folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

HARMLESS: Final = ("lost+found", ".snapshot", ".DS_Store")
"""Names that a file system or the desktop creates in an empty folder."""
_MOST_NAMED: Final = 3


def holds(names: Iterable[str], *, complete: bool = True) -> str:
    """Return the names of files as text, such as "it holds a, b, c and 2 more".

    Args:
        complete: False if the folder may hold more files than these.
    """
    ordered = sorted(names)
    least = "" if complete else "at least "
    more = f" and {least}{len(ordered) - _MOST_NAMED:,} more" if len(ordered) > _MOST_NAMED else ""
    return f"it holds {', '.join(ordered[:_MOST_NAMED])}{more}"
