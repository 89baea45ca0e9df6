"""The page of two datasets side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from pipeline.report.html import frame, plots, tables
from pipeline.report.html.cards import bins, capitalised, card, legend
from pipeline.report.html.markup import Child, Markup, name, shortened, tag
from pipeline.report.html.packing_figures import cost_ridges, spread
from pipeline.report.html.svg import Axis
from pipeline.report.model import Comparison, Distribution, Report, Waste
from pipeline.report.render.numerals import about, change, percent, plural

_RELATED: Final = {
    "same": "Both are the same build.",
    "child": "The second was made from the first.",
    "parent": "The first was made from the second.",
    "none": "Nothing says that one was made from the other.",
}


def comparison_body(both: Comparison) -> list[Child]:
    """Everything between the page's head and its end."""
    a, b = both.a, both.b
    lead = f"{_RELATED[both.related]} {plural(both.overlap.both, 'sequence')} {'is' if both.overlap.both == 1 else 'are'} in both."
    return [
        frame.heading(
            "two reports compared",
            [name(a.name), tag("span", " → ", class_="muted"), name(b.name)],
            lead,
        ),
        _tiles(both),
        _overlap(both),
        _lengths(both),
        _composition(both),
        _waste(both),
        _cost(both),
        _changes(both),
        _settings(both),
        _each(both, tables.splits),
        _each(both, tables.inputs),
        frame.footer(a, b),
    ]


def _tiles(both: Comparison) -> Markup:
    a, b = both.a, both.b
    numbers: list[tuple[str, float, float]] = [
        ("Records in", a.records, b.records),
        ("Kept", a.by_status["kept"], b.by_status["kept"]),
        ("Residues in", a.residues_in, b.residues_in),
        ("Tokens", a.tokens, b.tokens),
        ("Buckets", sum(s.buckets for s in a.splits), sum(s.buckets for s in b.splits)),
        ("Median residues", a.lengths.percentiles["50"], b.lengths.percentiles["50"]),
    ]
    return frame.tiles(
        [
            (what, about(y), f"{change((y - x) / x)} from {about(x)}" if x else f"from {about(x)}")
            for what, x, y in numbers
        ]
    )


def _names(both: Comparison) -> tuple[str, str]:
    """What plots call the two, even if they are called alike."""
    return f"A {shortened(both.a.name, 28)}", f"B {shortened(both.b.name, 28)}"


def _overlap(both: Comparison) -> Markup:
    found = both.overlap
    total = found.only_a + found.only_b + found.both
    share = found.both / total if total else 0.0
    title = f"{percent(share)} of all different sequences are in both"
    words = f"Different sequences by the exact hash of their tokens before cropping. The {found.both:,} common ones have {about(found.residues_both)} residues."
    a, b = _names(both)
    parts = (
        (f"only in {a}", found.only_a, "c1"),
        ("in both", found.both, "c3"),
        (f"only in {b}", found.only_b, "c2"),
    )
    plot = plots.parts(
        [(text, n, colour) for text, n, colour in parts],
        label=f"Overlap. {'; '.join(f'{text}: {n:,}' for text, n, _ in parts)}",
    )
    return card(
        "plot-overlap",
        title,
        words,
        plot,
        legend(
            (f"area {c}", f"{text}: {n:,} ({percent(n / total) if total else '0 %'})")
            for text, n, c in parts
        ),
        wide=True,
    )


def _lengths(both: Comparison) -> Markup | None:
    """Lengths of both, one over the other; None unless both have records."""
    a, b = both.a.lengths, both.b.lengths
    if not a.records or not b.records:
        return None
    title = f"Median length: {a.percentiles['50']:,} and {b.percentiles['50']:,} residues"
    edges = _common_edges(a.histogram, b.histogram)
    series = [
        _shares(part.histogram, edges, colour, text)
        for part, colour, text in zip((a, b), ("c1", "c2"), _names(both), strict=True)
    ]
    axis = Axis(low=edges[0], high=edges[-1])
    plot = plots.histogram(
        series, axis=axis, label=f"Lengths of both. {title}", over=True, unit=" %", numbers="end"
    )
    words = f"Share of the records of each, by residues, up to {edges[-1]:,.0f}; the longest have {a.longest:,} and {b.longest:,}."
    return card(
        "plot-lengths",
        title,
        words,
        tag("p", "% of records", class_="axis"),
        plot,
        legend((("area c1", series[0].name), ("area c2", series[1].name))),
        wide=True,
    )


def _common_edges(a: Distribution, b: Distribution) -> list[float]:
    """Edges as far apart as the wider bins of the two, up to where neither has but a long tail."""
    width = max(part.edges[1] - part.edges[0] for part in (a, b))
    low, high = min(a.edges[0], b.edges[0]), max(_tail(part) for part in (a, b))
    return [low + i * width for i in range(max(1, math.ceil((high - low) / width)) + 1)]


def _tail(values: Distribution) -> float:
    """Where bins of the first one's width end."""
    low, high = values.edges[:2]
    return (
        values.edges[-2] if values.edges[-1] - values.edges[-2] > high - low else values.edges[-1]
    )


def _shares(values: Distribution, edges: Sequence[float], colour: str, text: str) -> plots.Series:
    """Percent of all values in each of other bins; a bin that lies across several is spread evenly."""
    total = sum(values.counts) or 1
    heights = [0.0] * (len(edges) - 1)
    width = edges[1] - edges[0]
    for low, high, n in bins(values):
        for i in range(
            max(0, int((low - edges[0]) / width)),
            min(len(heights), int((high - edges[0]) / width) + 1),
        ):
            common = min(high, edges[i + 1]) - max(low, edges[i])
            heights[i] += 100 * n / total * max(0.0, common) / (high - low)
    return plots.Series(name=text, colour=colour, edges=edges, heights=heights)


def _composition(both: Comparison) -> Markup:
    wanted = {x.letter: x.share for x in both.a.composition.letters}
    found = [x for x in both.b.composition.letters if x.kind == "standard"]
    says = [
        f"{x.letter}: A {percent(wanted.get(x.letter, 0.0))}, B {percent(x.share)}" for x in found
    ]
    shares = [100 * wanted.get(x.letter, 0.0) for x in found]
    plot = plots.columns(
        [x.letter for x in found],
        [100 * x.share for x in found],
        shares,
        says,
        label=f"Composition. {'; '.join(says)}",
        colour="c2",
    )
    a, b = _names(both)
    furthest = max(
        (x for x in found if wanted.get(x.letter)),
        key=lambda x: abs(x.share / wanted[x.letter] - 1),
        default=None,
    )
    title = (
        "Composition"
        if furthest is None
        else f"Composition differs most in {furthest.letter}, {change(furthest.share / wanted[furthest.letter] - 1)}"
    )
    return card(
        "plot-composition",
        title,
        "Share of each amino acid among the residues.",
        plot,
        legend((("area c2", b), ("line", a))),
    )


def _waste(both: Comparison) -> Markup | None:
    """Padded and packed rows of both; None unless both kept something."""
    by_name = [{way.name: way for way in report.waste} for report in (both.a, both.b)]
    if not all(by_name):
        return None
    rows = [
        _bar(letter, ways[key], colour)
        for key in ("bshd", "packed")
        for letter, ways, colour in zip("AB", by_name, ("c1", "c2"), strict=True)
    ]
    title = f"Padding each row would waste {percent(by_name[0]['bshd'].waste)} and {percent(by_name[1]['bshd'].waste)}"
    plot = plots.bars(
        rows, label=f"Padding waste. {'; '.join(f'{row.name}: {row.words}' for row in rows)}"
    )
    names = legend((("area c1", "real tokens of A"), ("area c2", "of B"), ("rest", "padding")))
    return card(
        "plot-waste",
        title,
        "A whole row is all that a GPU computes on; its coloured part is real.",
        plot,
        names,
    )


def _bar(letter: str, way: Waste, colour: str) -> plots.Bar:
    name = f"{letter} · {capitalised(way.label)}"
    return plots.Bar(
        name=name,
        words=f"{percent(way.waste)} wasted",
        share=1 - way.waste,
        colour=colour,
        below=f"{way.places:,} token places",
    )


def _cost(both: Comparison) -> Markup | None:
    """Attention cost of both packings; None unless both have buckets."""
    packed = [
        next((way for way in report.waste if way.name == "packed"), None)
        for report in (both.a, both.b)
    ]
    rows = [
        (title, spread(way), colour, way.cost_counts)
        for title, way, colour in zip(_names(both), packed, ("c1", "c2"), strict=True)
        if way is not None and way.cost_counts is not None and way.cost_counts.counts
    ]
    if len(rows) < 2:
        return None
    words = "Σ length² of each bucket: what its attention costs. Narrow is fast."
    return card("plot-cost", "Attention cost over buckets", words, cost_ridges(rows), wide=True)


def _changes(both: Comparison) -> Markup:
    rows = [
        (
            one.name.replace("_", " "),
            _number(one.name, one.a),
            _number(one.name, one.b),
            "" if one.change is None else change(one.change),
        )
        for one in both.changes
        if one.a or one.b
    ]
    return card(
        "table-changes",
        "What changed",
        "Every number that is not 0 in both.",
        tables.table(("", "A", "B", "change"), rows),
        wide=True,
    )


def _number(what: str, value: float | None) -> str:
    if value is None:
        return "–"
    if what.startswith("waste_") or what.endswith("_fill"):
        return percent(value)
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"


def _settings(both: Comparison) -> Markup:
    rows = [(one.name, one.a, one.b) for one in both.settings]
    shown = tables.table(("option", "A", "B"), rows, words=3) if rows else tag("p", "None.")
    return card("table-settings", "Options that differ", "What shapes the bytes.", shown, wide=True)


def _each(both: Comparison, made: Callable[[Report, str], Markup]) -> list[Markup]:
    """The same table of each."""
    parts = (("A", both.a), ("B", both.b))
    return [
        tag(
            "section",
            tag("h3", f"{letter}: ", name(report.name)),
            made(report, f"{made.__name__}-{letter}"),
            class_="wide",
        )
        for letter, report in parts
    ]
