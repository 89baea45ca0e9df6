"""The figures of a comparison of two reports: A in the first colour, B in the second colour."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipeline.report.comparison import Comparison
from pipeline.report.distributions import Distribution, bins
from pipeline.report.html.figure import Figure, labelled
from pipeline.report.html.packing_figures import cost_ridges, waste_bar, waste_bars
from pipeline.report.html.plots import Column, Columns, Histogram, Parts, Series
from pipeline.report.html.svg import Axis
from pipeline.report.render.numerals import about, change, percent
from pipeline.report.render.printable import shortened

_COLOURS = ("c1", "c2")


def overlap(both: Comparison) -> Figure:
    """Show the numbers of sequences in A only, in both reports, and in B only."""
    found = both.overlap
    total = found.only_a + found.only_b + found.both
    a, b = _names(both)
    parts = (
        (f"only in {a}", found.only_a, "c1"),
        ("in both A and B", found.both, "c3"),
        (f"only in {b}", found.only_b, "c2"),
    )
    label = labelled("Overlap", (f"{text}: {n:,}" for text, n, _ in parts))
    return Figure(
        key="overlap",
        title=f"{percent(found.both / (total or 1))} of all distinct sequences are in both A and B",
        words="Sequences are compared by a hash of all their residues, before cropping. "
        f"The {found.both:,} sequences in both A and B have {about(found.residues_both)} residues.",
        plot=Parts(amounts=parts, label=label),
        legend=[
            ("area", colour, f"{text}: {n:,} ({percent(n / (total or 1))})")
            for text, n, colour in parts
        ],
        wide=True,
    )


def _names(both: Comparison) -> tuple[str, str]:
    """Return a short name for each report. The short names differ even if the names are equal."""
    return f"A {shortened(both.a.name, 28)}", f"B {shortened(both.b.name, 28)}"


def lengths(both: Comparison) -> Figure | None:
    """Show the histograms of lengths of both reports, B drawn over A.

    Return None if a report has no records.
    """
    a, b = both.a.lengths, both.b.lengths
    if not a.records or not b.records:
        return None
    title = f"Median length: {a.percentiles['50']:,} and {b.percentiles['50']:,} residues"
    edges = _common_edges(a.histogram, b.histogram)
    names = _names(both)
    series = [
        _shares(part.histogram, edges, colour, name)
        for part, colour, name in zip((a, b), _COLOURS, names, strict=True)
    ]
    return Figure(
        key="lengths",
        title=title,
        words=f"Share of the records by number of residues, up to {edges[-1]:,.0f} residues. "
        f"The longest records have {a.longest:,} (A) and {b.longest:,} (B) residues.",
        counted="% of records",
        plot=Histogram(
            series=series,
            axis=Axis(low=edges[0], high=edges[-1]),
            label=f"Lengths of A and B. {title}",
            over=True,
            unit=" %",
            numbers="end",
        ),
        legend=[("area", colour, name) for colour, name in zip(_COLOURS, names, strict=True)],
        wide=True,
    )


def _common_edges(a: Distribution, b: Distribution) -> list[float]:
    """Return edges for bins that cover both histograms, except the wide last bins.

    The new bins have the larger of the two bin widths.
    """
    width = max(part.edges[1] - part.edges[0] for part in (a, b))
    low, high = min(a.edges[0], b.edges[0]), max(_tail(part) for part in (a, b))
    return [low + i * width for i in range(max(1, math.ceil((high - low) / width)) + 1)]


def _tail(values: Distribution) -> float:
    """Return the upper end of the bins of equal width. A wider last bin is left out."""
    *_, before, last = values.edges
    return before if last - before > values.edges[1] - values.edges[0] else last


def _shares(values: Distribution, edges: Sequence[float], colour: str, name: str) -> Series:
    """Convert a histogram to bins with other edges and to percentages of all values.

    The count of an old bin is divided among the new bins in proportion to their overlap.
    """
    total = sum(values.counts) or 1
    heights = [0.0] * (len(edges) - 1)
    width = edges[1] - edges[0]
    for low, high, n in bins(values):
        first = max(0, int((low - edges[0]) / width))
        last = min(len(heights), int((high - edges[0]) / width) + 1)
        for i in range(first, last):
            common = min(high, edges[i + 1]) - max(low, edges[i])
            heights[i] += 100 * n / total * max(0.0, common) / (high - low)
    return Series(name=name, colour=colour, edges=edges, heights=heights)


def composition(both: Comparison) -> Figure:
    """Show the shares of the twenty standard letters in B, with the shares in A as a reference."""
    share_of = {letter.letter: letter.share for letter in both.a.composition.letters}
    columns, ratios = [], {}
    for letter in both.b.composition.letters:
        if letter.kind == "standard":
            a = share_of.get(letter.letter, 0.0)
            if a:
                ratios[letter.letter] = letter.share / a - 1
            says = f"{letter.letter}: A {percent(a)}, B {percent(letter.share)}"
            columns.append(
                Column(letter=letter.letter, value=100 * letter.share, reference=100 * a, says=says)
            )
    title = "Composition"
    if ratios:
        furthest = max(ratios, key=lambda letter: abs(ratios[letter]))
        title += f" differs most in {furthest}, {change(ratios[furthest])}"
    a_name, b_name = _names(both)
    return Figure(
        key="composition",
        title=title,
        words="Share of each amino acid among the residues of A and of B.",
        plot=Columns(
            columns=columns,
            label=labelled("Composition", (column.says for column in columns)),
            colour="c2",
        ),
        legend=(("area", "c2", b_name), ("line", "", a_name)),
    )


def waste(both: Comparison) -> Figure | None:
    """Show the padding of padded rows and of packed rows in A and B.

    Return None if a report kept no record.
    """
    ways = [{way.name: way for way in report.waste} for report in (both.a, both.b)]
    if not all(ways):
        return None
    bars = [
        waste_bar(f"{letter} · {of_report[name].title}", of_report[name], colour)
        for name in ("bshd", "packed")
        for letter, of_report, colour in zip("AB", ways, _COLOURS, strict=True)
    ]
    a, b = (percent(of_report["bshd"].waste) for of_report in ways)
    return Figure(
        key="waste",
        title=f"With padded rows, {a} of the tokens computed for A are padding, and {b} of those "
        "for B",
        words="Each bar stands for all tokens that a GPU computes (100 %). Its coloured part is "
        "the share of real tokens.",
        plot=waste_bars(bars),
        legend=(
            ("area", "c1", "real tokens of A"),
            ("area", "c2", "real tokens of B"),
            ("rest", "", "padding"),
        ),
    )


def cost(both: Comparison) -> Figure | None:
    """Show the attention cost of the buckets of A and B. Return None if A or B has no buckets."""
    drawn = [
        (name, way, colour)
        for name, report, colour in zip(_names(both), (both.a, both.b), _COLOURS, strict=True)
        for way in report.waste
        if way.name == "packed" and way.cost_counts is not None and way.cost_counts.counts
    ]
    if len(drawn) < 2:
        return None
    return Figure(
        key="cost",
        title="Attention cost over buckets",
        words="The attention cost of a bucket is Σ length² over its sequences. GPUs wait less for "
        "each other if the costs are nearly equal.",
        plot=cost_ridges(drawn),
        wide=True,
    )
