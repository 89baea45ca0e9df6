"""The tables of a report, as cards of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.report.html.cards import card
from pipeline.report.html.markup import Child, Markup, name, tag
from pipeline.report.model import Report
from pipeline.report.render.numerals import about, duration, percent, plural, size
from schemas.records import Status

_SHOWN = 50
"""Rows of a table of inputs; --csv has all."""


def table(head: Sequence[str], rows: Iterable[Sequence[Child]], *, words: int = 1) -> Markup:
    """A table that scrolls sideways where it must; the first `words` columns are text, the others numbers."""
    kinds = ["w" if i < words else "n" for i in range(len(head))]
    top = tag(
        "tr",
        [
            tag("th", title, class_=kind, scope="col")
            for title, kind in zip(head, kinds, strict=True)
        ],
    )
    body = [
        tag("tr", [tag("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)])
        for row in rows
    ]
    return tag("div", tag("table", tag("thead", top), tag("tbody", body)), class_="scroll")


def more(total: int) -> Markup | None:
    """Says that a table was cut."""
    return (
        tag("p", f"The first {_SHOWN} of {total:,}; thdpack stats --csv writes all.")
        if total > _SHOWN
        else None
    )


def splits(report: Report, key: str = "table-splits") -> Markup:
    """Train and valid."""
    head = (
        "split",
        "shards",
        "bytes",
        "buckets",
        "sequences",
        "tokens",
        "fill",
        "Σ length² spread",
        "max / mean",
        "most sequences",
    )
    rows = [
        (
            s.name,
            f"{s.shards:,}",
            size(s.bytes),
            f"{s.buckets:,}",
            f"{s.sequences:,}",
            f"{s.tokens:,}",
            percent(s.fill),
            f"{s.spread:.4f}",
            f"{s.peak:.3f}",
            f"{s.seqs_max:,}",
        )
        for s in report.splits
    ]
    words = (
        "What training and validation read."
        if report.prediction is None
        else "What preprocessing would make: a forecast, but for sequences and tokens."
    )
    return card(key, "Train and valid", words, table(head, rows), wide=True)


def batching(report: Report) -> Markup:
    """The numbers behind the plots of waste and cost."""
    head = ("batching", "batches", "token places", "wasted", "Σ length² spread", "max / mean")
    rows = [
        (
            way.label + (" (forecast)" if way.predicted else ""),
            f"{way.batches:,}",
            f"{way.places:,}",
            percent(way.waste),
            f"{way.spread:.4f}",
            f"{way.peak:.3f}",
        )
        for way in report.waste
    ]
    words = "Spread: coefficient of variation over batches. Max / mean: how much longer the costliest keeps the others waiting."
    return card(
        "table-batching", "Ways of batching these sequences", words, table(head, rows), wide=True
    )


def budget(report: Report) -> Markup | None:
    """The numbers behind the plot of the budget, each with its source."""
    if not report.budget.rows:
        return None
    sources = list(dict.fromkeys(row.source for row in report.budget.rows))
    head = ("model", "precision", "tokens/s", "one epoch", "whole run", "epochs of a run", "source")
    rows = [
        (
            row.preset,
            row.precision,
            f"{row.tokens_per_second:,.0f}",
            duration(row.epoch_gpu_hours),
            f"{row.run_gpu_hours:,.0f} GPU-hours",
            f"{row.epochs:,.1f}",
            f"{sources.index(row.source) + 1}",
        )
        for row in report.budget.rows
    ]
    words = f"Unpadded tokens/s of one {report.budget.gpu}; an epoch is {about(report.budget.tokens)} tokens. Several GPUs are taken to be as fast as one each."
    notes = [tag("p", f"{i}: {source}") for i, source in enumerate(sources, 1)]
    return card("table-budget", "Token budget", words, table(head, rows, words=2), notes, wide=True)


def inputs(report: Report, key: str = "table-inputs") -> Markup:
    """Fate of records, by input."""
    used = [status for status in Status if report.by_status[status]]
    head = ("input", "bytes", "records", "residues", *(status.replace("_", " ") for status in used))
    rows: list[Sequence[Child]] = [
        (
            name(one.name),
            size(one.bytes),
            f"{one.records:,}",
            f"{one.residues:,}",
            *(f"{one.by_status[status]:,}" for status in used),
        )
        for one in report.inputs[:_SHOWN]
    ]
    if len(report.inputs) > 1:
        total = sum(one.bytes for one in report.inputs)
        rows.append(
            (
                "all",
                size(total),
                f"{report.records:,}",
                f"{report.residues_in:,}",
                *(f"{report.by_status[status]:,}" for status in used),
            )
        )
    words = f"{plural(len(report.inputs), 'input')}; what was left out is in records/, each with its reason."
    return card(
        key, "Records by input", words, table(head, rows), more(len(report.inputs)), wide=True
    )


def rare(report: Report) -> Markup:
    """Letters beyond the twenty."""
    found = [
        letter
        for letter in report.composition.letters
        if letter.kind != "standard" and letter.count
    ]
    rows = [(tag("b", x.letter), x.kind, f"{x.count:,}", percent(x.share)) for x in found]
    unknown = report.composition
    words = f"No letter that came in is outside the vocabulary {report.settings.vocabulary}."
    if unknown.unknown_residues:
        many = f"{plural(unknown.unknown_residues, 'letter')} in {plural(unknown.unknown_records, 'record')} that came in"
        words = f"Outside the vocabulary {report.settings.vocabulary}, so read as <unk>: {many}."
    shown = (
        table(("letter", "kind", "residues", "share"), rows, words=2)
        if rows
        else tag("p", "There are none: all residues are of the standard twenty.")
    )
    return card("table-letters", "Rare and unknown letters", words, shown)


def duplicates(report: Report) -> Markup:
    """Duplicates by where they are and where their first copy is."""
    found = sorted(report.duplicates, key=lambda one: -one.records)
    rows = [(name(one.source), name(one.original), f"{one.records:,}") for one in found[:_SHOWN]]
    total = report.by_status[Status.DUPLICATE]
    shown = (
        table(("duplicates in", "first copy in", "records"), rows, words=2)
        if rows
        else tag("p", "There are none.")
    )
    words = f"{plural(total, 'record')} with exactly the residues of an earlier one."
    if report.cropped_copies:
        words += f" Kept, but once truncated the same as an earlier one: {report.cropped_copies:,}."
    return card("table-duplicates", "Duplicates by source", words, shown, more(len(found)))


def longest(report: Report) -> Markup:
    """The longest records."""
    words = f"Records by their residues, before the crop at {report.lengths.crop:,}."
    if len(report.inputs) == 1:
        shown = table(
            ("id", "residues"), [(name(one.id), f"{one.residues:,}") for one in report.longest]
        )
    else:
        shown = table(
            ("id", "input", "residues"),
            [(name(one.id), name(one.source), f"{one.residues:,}") for one in report.longest],
            words=2,
        )
    return card("table-longest", "The longest", words, shown)


def repeated(report: Report) -> Markup:
    """The most repeated records."""
    rows = [(name(one.id), f"{one.residues:,}", f"{one.times:,}\u00a0×") for one in report.repeated]
    shown = (
        table(("id of the first", "residues", "came in"), rows)
        if rows
        else tag("p", "No sequence came in twice.")
    )
    return card(
        "table-repeated", "The most repeated", "Sequences by how often they came in.", shown
    )


def settings(report: Report) -> Markup:
    """The options, and what tells this dataset from another."""
    options = report.settings
    facts: list[tuple[str, Child]] = [
        (
            label.replace("_", "-"),
            f"{getattr(options, label):,}"
            if isinstance(getattr(options, label), int)
            else str(getattr(options, label)),
        )
        for label in options.__dataclass_fields__
    ]
    marks = (
        ("generation", report.generation),
        ("build", report.build),
        ("parent", report.parent),
        ("manifest digest", report.manifest_digest),
    )
    facts += [(label, name(str(value))) for label, value in marks if value is not None]
    listed = tag(
        "dl",
        [tag("div", tag("dt", label), tag("dd", value)) for label, value in facts],
        class_="row facts",
    )
    words = (
        "What shapes the bytes of the dataset."
        if report.kind == "dataset"
        else "What a build with these options would do."
    )
    return card("table-settings", "Options", words, listed, wide=True)
