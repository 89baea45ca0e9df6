"""Draw titles and tables in the terminal. Names from files are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from pipeline.report.render.printable import printable
from pipeline.report.render.table import Name, Table

_BAR: Final = 24
"""Length of a bar for a share of 1, in characters."""
_RIGHTWARD: Final = " ▏▎▍▌▋▊▉█"
_NAME: Final = 48
"""Largest length of a name in a table, in characters."""
_LONGEST: Final = 200
"""Largest length of a name that may take several lines, in characters."""

Part = Rule | RichTable | Text
"""A part of the report, which rich prints."""


def title(text: str) -> Rule:
    """Return the title of a section."""
    return Rule(Text(one_line(text, 120), style="bold"), align="left", style="dim")


def drawn(table: Table, *, bars: Sequence[float] = (), whole_names: bool = False) -> Iterable[Part]:
    """Draw a table. A narrow terminal cuts off text, but not numbers.

    whole_names: True to break names into several lines instead of cutting them off
    bars: share (0 … 1) for each row, drawn as a bar in an additional last column
    """
    grid = RichTable(box=None, pad_edge=False, header_style="dim")
    for i, header in enumerate(table.head):
        words = i < table.words
        grid.add_column(
            header, justify="left" if words else "right", no_wrap=not words, overflow="ellipsis"
        )
    if bars:
        grid.add_column("")
    for i, row in enumerate(table.rows):
        cells = [_name(cell, whole_names) if isinstance(cell, Name) else cell for cell in row]
        grid.add_row(*cells, *([_bar(bars[i])] if bars else ()))
    yield grid
    if table.left_out:
        yield Text(f"… and {table.left_out:,} more", style="dim")


def _name(name: str, whole: bool) -> Text:
    """Return a name as a Text, because rich would interpret markup such as `[red]` in a string."""
    if whole:
        return Text(one_line(name, _LONGEST), overflow="fold")
    return Text(one_line(name, _NAME), no_wrap=True, overflow="ellipsis")


def one_line(text: str, most: int) -> str:
    """Return printable text on one line, cut off after `most` characters."""
    clean = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"


def _bar(share: float) -> Text:
    eighths = round(8 * _BAR * max(0.0, min(1.0, share)))
    return Text("█" * (eighths // 8) + _RIGHTWARD[eighths % 8].strip(), style="cyan")
