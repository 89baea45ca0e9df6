"""What figures and tables of a page are put into, and what tells their colours apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipeline.report.html import plots
from pipeline.report.html.markup import Child, Markup, tag
from pipeline.report.html.svg import short
from pipeline.report.model import Distribution
from pipeline.report.render.numerals import percent, plural


def card(key: str, title: str, words: str, *children: Child, wide: bool = False) -> Markup:
    """A figure; `key` is its id, `words` say what is drawn."""
    return tag(
        "figure",
        tag("figcaption", tag("h2", title), tag("p", words)),
        *children,
        id=key,
        class_="card wide" if wide else "card",
    )


def legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """Names of colours; a shape is `area`, `line`, `rest`, `round` or `square`, a colour behind a blank."""
    return tag(
        "ul", [tag("li", _swatch(shape), words) for shape, words in entries], class_="legend"
    )


def _swatch(shape: str) -> Markup:
    kind, _, colour = shape.partition(" ")
    if kind == "line":
        drawn = tag("line", class_="reference", x1="0", x2="14", y1="6", y2="6")
    elif kind == "round":
        drawn = tag("circle", class_=f"dot {colour}", cx="7", cy="6", r="6")
    else:
        drawn = tag(
            "rect",
            class_=colour or kind,
            width="12" if kind == "square" else "14",
            height="12",
            rx="2",
        )
    return tag("svg", drawn, viewBox="0 0 14 12", aria_hidden="true")


def bins(values: Distribution) -> Iterator[tuple[float, float, int]]:
    """Where each bin begins and ends, and its count."""
    return zip(values.edges[:-1], values.edges[1:], values.counts, strict=True)


def counted(
    values: Distribution, colour: str, name: str, what: tuple[str, str], *, whole: bool = True
) -> plots.Series:
    """A distribution as an area; `what` is a value's unit, with a blank before it, and what is counted."""
    total = sum(values.counts) or 1
    unit, noun = what
    says = [
        f"{_span(a, b, whole)}{unit}: {plural(n, noun)} ({percent(n / total)})"
        for a, b, n in bins(values)
    ]
    return plots.Series(
        name=name, colour=colour, edges=values.edges, heights=values.counts, says=says
    )


def _span(low: float, high: float, whole: bool) -> str:
    """What values a bin holds."""
    if not whole:
        return f"{short(low)} – {short(high)}"
    return f"{low:,.0f}" if high - low <= 1 else f"{low:,.0f} – {high - 1:,.0f}"


def capitalised(label: str) -> str:
    """The label as a line begins."""
    return label[:1].upper() + label[1:]
