"""A figure of the page: a plot with its title, words and legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.report.distributions import bins
from pipeline.report.html.plots import Plot, Series
from pipeline.report.html.svg import short
from pipeline.report.model import Distribution
from pipeline.report.render.numerals import percent, plural


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A card of the page.

    key: its id in the page, after `plot-`
    title: the finding, which follows from the numbers; words: a description of the plot
    plot: None if there is nothing to draw
    counted: unit of the y axis, if it has numbers
    legend: shape (`area`, `line`, `rest`, `round`, `square`), colour or "", and words of each entry
    facts: numbers to show below the plot
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
    """Return a distribution as an area.

    what: unit of a value, with a blank before it; noun for one of the things counted
    whole: values are whole numbers
    """
    total = sum(values.counts) or 1
    unit, noun = what
    says = [
        f"{_span(a, b, whole)}{unit}: {plural(n, noun)} ({percent(n / total)})"
        for a, b, n in bins(values)
    ]
    return Series(name=name, colour=colour, edges=values.edges, heights=values.counts, says=says)


def _span(low: float, high: float, whole: bool) -> str:
    """Write the values that a bin holds."""
    if not whole:
        return f"{short(low)} – {short(high)}"
    return f"{low:,.0f}" if high - low <= 1 else f"{low:,.0f} – {high - 1:,.0f}"


def labelled(what: str, parts: Iterable[str]) -> str:
    """Return the label of a plot: its subject, then its parts."""
    return f"{what}. {'; '.join(parts)}"
