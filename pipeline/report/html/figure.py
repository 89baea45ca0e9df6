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
    title: what the plot shows, in words that follow from the numbers; words: what is drawn
    plot: None if there is nothing to draw, which `words` say then
    counted: what the y axis counts, if it has numbers
    legend: shape (`area`, `line`, `rest`, `round`, `square`), colour or "", and words of each entry
    facts: numbers to stand under the plot
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

    what: unit of a value, with a blank before it, and noun for what is counted
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
    """Return a plot's label: what it shows, then its parts."""
    return f"{what}. {'; '.join(parts)}"
