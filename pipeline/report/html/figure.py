"""A figure of the HTML page: a plot with title, description and legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.report.distributions import Distribution, bins
from pipeline.report.html.plots import Plot, Series
from pipeline.report.html.svg import short
from pipeline.report.render.numerals import percent
from schemas.text.phrases import plural


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A figure, which the page shows as a card.

    key: id of the card's HTML element, without the prefix `plot-`
    title: main finding, a sentence with numbers of the report
    words: description of the plot
    plot: plot to show; None for a card without a plot
    counted: unit of the y axis; empty if the axis has no numbers
    legend: three texts for each entry: its shape (`area`, `line`, `round`, `square`, or `rest`, the
        hatching of padding), its colour ("" for none), and its text
    facts: name and value of each number to show below the plot
    wide: True if the card has the whole width of the page
    """

    key: str
    title: str
    words: str
    plot: Plot | None = None
    counted: str = ""
    legend: Sequence[tuple[str, str, str]] = ()
    facts: Sequence[tuple[str, str]] = ()
    wide: bool = False


def area(
    values: Distribution, colour: str, name: str, what: tuple[str, str], *, whole: bool = True
) -> Series:
    """Return the area that a plot shows for a distribution.

    what: unit of the values, with a leading blank, and singular noun of the counted objects
    whole: True if the values are whole numbers
    """
    total = sum(values.counts) or 1
    unit, noun = what
    says = [
        f"{_span(a, b, whole)}{unit}: {plural(n, noun)} ({percent(n / total)})"
        for a, b, n in bins(values)
    ]
    return Series(name=name, colour=colour, edges=values.edges, heights=values.counts, says=says)


def _span(low: float, high: float, whole: bool) -> str:
    """Return the text of a bin's range of values."""
    if not whole:
        return f"{short(low)} – {short(high)}"
    return f"{low:,.0f}" if high - low <= 1 else f"{low:,.0f} – {high - 1:,.0f}"


def labelled(what: str, parts: Iterable[str]) -> str:
    """Return the label of a plot: the plot's subject, then the text of each part."""
    return f"{what}. {'; '.join(parts)}"
