"""The figures of what came in. The title of each says what its plot shows, in words that follow from the numbers."""

from __future__ import annotations

from typing import Final

from pipeline.report.html import plots
from pipeline.report.html.cards import card, counted, legend
from pipeline.report.html.flow import Node, Stream
from pipeline.report.html.flow import flow as flow_plot
from pipeline.report.html.markup import Markup, shortened, tag
from pipeline.report.html.svg import Axis, short
from pipeline.report.model import Report
from pipeline.report.render.numerals import about, change, percent, plural
from schemas.records import Status

_OUTCOMES: Final = {
    Status.KEPT: "c1",
    Status.DUPLICATE: "c5",
    Status.INVALID: "c4",
    Status.TOO_SHORT: "c2",
    Status.TOO_LONG: "c3",
}
_MOST_INPUTS: Final = 8
"""Inputs with a node of their own; the smaller ones share one."""


def lengths(report: Report) -> Markup:
    """Residues of the records, the crop, and percentiles."""
    found = report.lengths
    if not found.records:
        return card("plot-lengths", "No records", "Nothing came in.", wide=True)
    p = found.percentiles
    title = f"Half of the records have {p['25']:,} to {p['75']:,} residues"
    words = f"Residues of all {found.records:,} records that came in: {found.shortest:,} to {found.longest:,}, {found.mean:,.1f} on average. {_long_ones(report)}"
    series = counted(found.histogram, "c1", "records", (" residues", "record"))
    # the last bin holds a tail that may be longer than all the rest: it is drawn as wide as two others, and named
    edges = series.edges
    axis = Axis(
        low=edges[0],
        high=min(edges[-1], edges[-2] + 2 * (edges[1] - edges[0])) if len(edges) > 2 else edges[-1],
    )
    tail = edges[-1] > axis.high
    names = {x: short(x) for x in axis.ticks(5) if not tail or axis.at(x) < 92}
    if tail:
        names[axis.high] = f"≥ {edges[-2]:,.0f}"
    marks = [
        plots.Mark(x=p[q], text=f"{text} {p[q]:,}", row=row)
        for row, (q, text) in enumerate((("50", "median"), ("95", "95 %")))
        if p[q] < axis.high
    ]
    marks.append(
        plots.Mark(
            x=found.crop,
            text=f"crop {found.crop:,}{' →' if found.crop > axis.high else ''}",
            row=2,
            strong=True,
        )
    )
    plot = plots.histogram(
        [series],
        axis=axis,
        names=names,
        marks=marks,
        label=f"Histogram of lengths. {title}. {words}",
        height=250,
        numbers="end",
    )
    return card(
        "plot-lengths",
        title,
        words,
        tag("p", "records", class_="axis"),
        plot,
        _percentiles(report),
        wide=True,
    )


def _long_ones(report: Report) -> str:
    """What becomes of records that do not fit into max_seq_len."""
    found, kept = report.lengths, report.by_status[Status.KEPT]
    many = f"{plural(found.cropped, 'kept record')} ({percent(found.cropped / kept) if kept else 'none'})"
    if report.settings.long == "split":
        return f"Longer than {found.crop:,} are cut into pieces: {many}."
    if report.settings.long == "drop":
        return f"Longer than {found.crop:,} are left out: {plural(report.by_status[Status.TOO_LONG], 'record')}."
    return f"Longer than {found.crop:,} are cropped: {many}, {about(found.residues_cropped)} residues in no bucket."


def _percentiles(report: Report) -> Markup:
    found = report.lengths
    entries = {
        "shortest": found.shortest,
        **{f"{p}\u00a0% ≤": n for p, n in found.percentiles.items()},
        "longest": found.longest,
    }
    return tag(
        "dl",
        [tag("div", tag("dt", what), tag("dd", f"{n:,}")) for what, n in entries.items()],
        class_="row",
    )


def composition(report: Report) -> Markup:
    """The twenty standard letters beside the background."""
    found = [letter for letter in report.composition.letters if letter.kind == "standard"]
    named = [(letter, letter.background) for letter in found if letter.background]
    furthest = max(named, key=lambda pair: abs(pair[0].share / pair[1] - 1), default=None)
    title = "Residue composition"
    if furthest is not None and any(letter.count for letter in found):
        letter, wanted = furthest
        title = f"Composition: furthest from Swiss-Prot is {letter.letter}, {change(letter.share / wanted - 1)}"
    where = "in buckets" if report.composition.over == "buckets" else "that came in"
    words = f"Share of each amino acid among the residues {where}, beside its share in Swiss-Prot."
    says = [
        f"{x.letter}: {percent(x.share)}"
        + (
            f", Swiss-Prot {percent(x.background)}, {change(x.share / x.background - 1)}"
            if x.background
            else ""
        )
        for x in found
    ]
    plot = plots.columns(
        [x.letter for x in found],
        [100 * x.share for x in found],
        [100 * (x.background or 0) for x in found],
        says,
        label=f"Residue composition. {'; '.join(says)}",
    )
    return card(
        "plot-composition",
        title,
        words,
        plot,
        legend((("area c1", "here"), ("line", f"{report.composition.background_source}"))),
    )


def flow(report: Report) -> Markup:
    """Where the records of each input went."""
    kept = report.by_status[Status.KEPT]
    title = (
        f"{percent(kept / report.records)} of {plural(report.records, 'record')} {'were' if report.kind == 'dataset' else 'would be'} kept"
        if report.records
        else "No records"
    )
    fates = [status for status in _OUTCOMES if report.by_status[status]]
    inputs = sorted(report.inputs, key=lambda one: -one.records)
    many = len(inputs) > _MOST_INPUTS
    shown = inputs[: _MOST_INPUTS - 1] if many else inputs
    rest = inputs[len(shown) :]
    groups = [(shortened(one.name, 24), [one]) for one in shown] + (
        [(f"{len(rest):,} smaller inputs", rest)] if many else []
    )
    sources = [
        Node(name=name, words=f"{sum(one.records for one in group):,}") for name, group in groups
    ]
    targets = [
        Node(
            name=status.replace("_", " "),
            words=f"{report.by_status[status]:,} ({percent(report.by_status[status] / report.records)})",
            colour=_OUTCOMES[status],
        )
        for status in fates
    ]
    streams = [
        Stream(source=i, target=j, amount=sum(one.by_status[status] for one in group))
        for i, (_, group) in enumerate(groups)
        for j, status in enumerate(fates)
    ]
    plot = flow_plot(
        sources,
        targets,
        streams,
        label=f"Records by input and fate. {'; '.join(f'{node.name} {node.words}' for node in targets)}",
    )
    return card(
        "plot-flow",
        title,
        "Records from each input on the left to their fate on the right.",
        plot,
        wide=True,
    )
