"""The figures about input records: lengths, composition, and status by input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pipeline.report.html.figure import Figure, area, labelled
from pipeline.report.html.flow import Flow, Node, Stream
from pipeline.report.html.plots import Column, Columns, Histogram, Mark
from pipeline.report.html.svg import Axis, round_steps, short
from pipeline.report.model import InputFlow, Report
from pipeline.report.render.numerals import change, percent
from pipeline.report.render.printable import shortened
from pipeline.report.render.sentences import longer_records, sampled_clusters
from schemas.records import Status
from schemas.text.phrases import plural

_COLOURS: Final = {
    Status.KEPT: "c1",
    Status.DUPLICATE: "c5",
    Status.INVALID: "c4",
    Status.TOO_SHORT: "c2",
    Status.TOO_LONG: "c3",
    Status.FILTERED: "c6",
    Status.EXCLUDED: "c7",
}
_MOST_INPUTS: Final = 8
"""Largest number of nodes for inputs. If there are more inputs, the smallest share one node."""


def lengths(report: Report) -> Figure:
    """Show a histogram of lengths, with percentiles and the maximum length after cropping."""
    found = report.lengths
    if not found.records:
        return Figure(
            key="lengths", title="No records", words="The input has no records.", wide=True
        )
    p = found.percentiles
    title = f"Half of the records have {p['25']:,} to {p['75']:,} residues"
    sentences = f"{longer_records(report)} {sampled_clusters(report)}".rstrip()
    words = (
        f"{plural(found.records, 'input record')} of {found.shortest:,} to {found.longest:,} "
        f"residues, {found.mean:,.1f} on average. {sentences}"
    )
    axis = _lengths_axis(found.histogram.edges)
    marks = [
        Mark(x=p[q], text=f"{text} {p[q]:,}", row=row)
        for row, (q, text) in enumerate((("50", "median"), ("95", "95 %")))
        if p[q] < axis.high
    ]
    crop = f"crop {found.crop:,}{' →' if found.crop > axis.high else ''}"
    plot = Histogram(
        series=[area(found.histogram, "c1", "records", (" residues", "record"))],
        axis=axis,
        marks=[*marks, Mark(x=found.crop, text=crop, row=2, strong=True)],
        label=f"Histogram of lengths. {title}. {words}",
        height=250,
        numbers="end",
    )
    facts = [(f"{p}\u00a0% ≤", f"{n:,}") for p, n in found.percentiles.items()]
    return Figure(
        key="lengths",
        title=title,
        words=words,
        counted="records",
        plot=plot,
        facts=[("shortest", f"{found.shortest:,}"), *facts, ("longest", f"{found.longest:,}")],
        wide=True,
    )


def _lengths_axis(edges: tuple[float, ...]) -> Axis:
    """Return the axis of lengths. The last bin is drawn at most twice as wide as the others."""
    high = edges[-1] if len(edges) <= 2 else min(edges[-1], edges[-2] + 2 * (edges[1] - edges[0]))
    axis = Axis(low=edges[0], high=high)
    tail = edges[-1] > high
    names = {x: short(x) for x in round_steps(axis.low, high, 5) if not tail or axis.at(x) < 92}
    if tail:
        names[high] = f"≥ {edges[-2]:,.0f}"
    return replace(axis, names=names)


def composition(report: Report) -> Figure:
    """Show the shares of the twenty standard letters, with Swiss-Prot's shares as a reference."""
    letters = [letter for letter in report.composition.letters if letter.kind == "standard"]
    columns, ratios = [], {}
    for letter in letters:
        says = f"{letter.letter}: {percent(letter.share)}"
        if letter.background:
            ratios[letter.letter] = letter.share / letter.background - 1
            says += f", Swiss-Prot {percent(letter.background)}, {change(ratios[letter.letter])}"
        columns.append(
            Column(
                letter=letter.letter,
                value=100 * letter.share,
                reference=100 * (letter.background or 0),
                says=says,
            )
        )
    title = "Residue composition"
    if ratios and any(letter.count for letter in letters):
        furthest = max(ratios, key=lambda letter: abs(ratios[letter]))
        title = f"{furthest} differs most from Swiss-Prot: {change(ratios[furthest])}"
    where = "in buckets" if report.composition.over == "buckets" else "of all input records"
    return Figure(
        key="composition",
        title=title,
        words=f"Share of each amino acid among the residues {where}, "
        "compared with its share in Swiss-Prot.",
        plot=Columns(
            columns=columns,
            label=labelled("Residue composition", (column.says for column in columns)),
        ),
        legend=(("area", "c1", "this data"), ("line", "", report.composition.background_source)),
    )


def flow(report: Report) -> Figure:
    """Show the number of records of each input by status."""
    title = "No records"
    if report.records:
        kept = percent(report.by_status[Status.KEPT] / report.records)
        verb = "were" if report.kind == "dataset" else "would be"
        title = f"{kept} of {plural(report.records, 'record')} {verb} kept"
    fates = [status for status in _COLOURS if report.by_status[status]]
    groups = _groups(report.inputs)
    targets = []
    for status in fates:
        count = report.by_status[status]
        words = f"{count:,} ({percent(count / report.records)})"
        targets.append(Node(name=status.replace("_", " "), words=words, colour=_COLOURS[status]))
    plot = Flow(
        sources=[
            Node(name=name, words=f"{sum(source.records for source in group):,}")
            for name, group in groups
        ],
        targets=targets,
        streams=[
            Stream(source=i, target=j, amount=sum(source.by_status[status] for source in group))
            for i, (_, group) in enumerate(groups)
            for j, status in enumerate(fates)
        ],
        label=labelled(
            "Records by input and status", (f"{node.name} {node.words}" for node in targets)
        ),
    )
    return Figure(
        key="flow",
        title=title,
        words="Inputs are on the left. The statuses of their records are on the right.",
        plot=plot,
        wide=True,
    )


def _groups(inputs: Sequence[InputFlow]) -> list[tuple[str, list[InputFlow]]]:
    """Return a group for each of the largest inputs, and one group for all smaller inputs.

    A group has a name and its inputs.
    """
    by_size = sorted(inputs, key=lambda source: -source.records)
    shown = by_size if len(by_size) <= _MOST_INPUTS else by_size[: _MOST_INPUTS - 1]
    groups = [(shortened(source.name, 24), [source]) for source in shown]
    if rest := by_size[len(shown) :]:
        groups.append((f"{len(rest):,} smaller inputs", rest))
    return groups
