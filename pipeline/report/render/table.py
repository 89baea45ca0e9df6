"""A table of text, which the renderers in `terminal.py` and `html/` draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

_Entry = TypeVar("_Entry")
Columns = Mapping[str, Callable[[_Entry], str]]
"""A function for each column, by the column's name. The function returns the text of an entry's
cell."""


class Name(str):
    """A name from a file. The name may contain any characters, so renderers must escape it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text.

    head: names of the columns; the terminal breaks a name at its line feeds
    rows: cells of each row, one cell for each column
    words: number of text columns, which come before the columns of numbers
    left_out: number of rows that are not shown
    """

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: int = 1
    left_out: int = 0


def table_of(
    entries: Iterable[_Entry],
    columns: Columns[_Entry],
    *,
    words: int = 1,
    left_out: int = 0,
) -> Table:
    """Return a table with a row for each entry. For `words` and `left_out`, see `Table`."""
    rows = [tuple(cell(entry) for cell in columns.values()) for entry in entries]
    return Table(tuple(columns), rows, words, left_out)
