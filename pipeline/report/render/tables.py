"""Tables that the terminal report and the HTML page share: columns and formatted cells.

The renderers in `terminal.py` and `html/` draw these tables.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Final

from pipeline.report.comparison import Change, Comparison
from pipeline.report.model import RecordNote, Report, SplitReport
from pipeline.report.model_estimates import BudgetRow
from pipeline.report.render.numerals import change, duration, percent, points, size
from pipeline.report.render.table import Columns, Name, Table, table_of
from schemas.models import FEW_EPOCHS
from schemas.records import Status
from schemas.split_fractions import SplitFractions

RELATED: Final = {
    "same": "A and B are the same build.",
    "child": "B was made from A.",
    "parent": "A was made from B.",
    "none": "No manifest says that A was made from B, or B from A.",
}
"""Sentence for each value of `Comparison.related`."""


def shown_splits(report: Report) -> tuple[SplitReport, ...]:
    """Return the splits that have buckets, or a share of the records in the build's options."""
    fractions = SplitFractions.parse(report.settings.split)
    return tuple(s for s in report.splits if s.buckets or fractions.share(s.name))


def splits(report: Report) -> Table:
    """Return the size of each split and the statistics of its buckets."""
    return table_of(
        shown_splits(report),
        {
            "split": lambda split: split.name,
            "shards": lambda split: f"{split.shards:,}",
            "bytes": lambda split: size(split.bytes),
            "buckets": lambda split: f"{split.buckets:,}",
            "sequences": lambda split: f"{split.sequences:,}",
            "tokens": lambda split: f"{split.tokens:,}",
            "fill": lambda split: percent(split.fill),
            "Σ length² spread": lambda split: f"{split.spread:.4f}",
            "max / mean": lambda split: f"{split.peak:.3f}",
            "most sequences": lambda split: f"{split.seqs_max:,}",
        },
    )


def batching(report: Report) -> Table:
    """Return the padding and attention cost of each way of batching."""
    return table_of(
        report.waste,
        {
            "batching": lambda way: way.label + (" (forecast)" if way.predicted else ""),
            "batches": lambda way: f"{way.batches:,}",
            "token\nplaces": lambda way: f"{way.places:,}",
            "wasted": lambda way: percent(way.waste),
            "Σ length²\nspread": lambda way: f"{way.spread:.4f}",
            "max /\nmean": lambda way: f"{way.peak:.3f}",
        },
    )


def budget_sources(report: Report) -> list[str]:
    """Return the sources of tokens/s, in the order of the source numbers in `budget`."""
    return list(dict.fromkeys(row.source for row in report.budget.rows))


def budget(report: Report) -> Table:
    """Return the training time of each preset: one epoch, and a whole published run.

    For small data, FEW_EPOCHS epochs replace the whole run.
    """
    sources = budget_sources(report)
    run: Columns[BudgetRow] = {
        "whole run": lambda row: f"{row.run_gpu_hours:,.0f} GPU-hours",
        "epochs\nof a run": lambda row: f"{row.epochs:,.1f}",
    }
    few: Columns[BudgetRow] = {
        f"{FEW_EPOCHS} epochs": lambda row: duration(row.few_epochs_gpu_hours)
    }
    return table_of(
        report.budget.rows,
        {
            "model": lambda row: row.preset,
            "precision": lambda row: row.precision,
            "tokens/s": lambda row: f"{row.tokens_per_second:,.0f}",
            "one epoch": lambda row: duration(row.epoch_gpu_hours),
            **(few if report.budget.is_small else run),
            "source": lambda row: f"{sources.index(row.source) + 1}",
        },
        words=2,
    )


def inputs(report: Report, most: int) -> Table:
    """Return the number of records by status, in a row for each input and a row of totals.

    most: largest number of inputs to show
    """
    used = [status for status in Status if report.by_status[status]]
    table = table_of(
        report.inputs[:most],
        {
            "input": lambda source: Name(source.name),
            "bytes": lambda source: size(source.bytes),
            "records": lambda source: f"{source.records:,}",
            "residues": lambda source: f"{source.residues:,}",
        }
        | {s.replace("_", " "): lambda source, s=s: f"{source.by_status[s]:,}" for s in used},
        left_out=max(0, len(report.inputs) - most),
    )
    if len(report.inputs) <= 1:
        return table
    stored = size(sum(source.bytes for source in report.inputs))
    fates = (f"{report.by_status[status]:,}" for status in used)
    total = ("all", stored, f"{report.records:,}", f"{report.residues_in:,}", *fates)
    return replace(table, rows=[*table.rows, total])


def letters(report: Report) -> Table:
    """Return the counts of all letters that occur, except the twenty standard letters."""
    letters = report.composition.letters
    return table_of(
        (entry for entry in letters if entry.kind != "standard" and entry.count),
        {
            "letter": lambda entry: entry.letter,
            "kind": lambda entry: entry.kind,
            "residues": lambda entry: f"{entry.count:,}",
            "share": lambda entry: percent(entry.share),
        },
        words=2,
    )


def longest(report: Report) -> Table:
    """Return the longest records. With several inputs, a column names the input of each record."""
    several = len(report.inputs) > 1
    source: Columns[RecordNote] = {"input": lambda record: Name(record.source)} if several else {}
    return table_of(
        report.longest,
        {
            "id": lambda record: Name(record.id),
            **source,
            "residues": lambda record: f"{record.residues:,}",
        },
        words=2 if several else 1,
    )


def repeated(report: Report) -> Table:
    """Return the sequences that occur most often."""
    return table_of(
        report.repeated,
        {
            "id of the first": lambda record: Name(record.id),
            "residues": lambda record: f"{record.residues:,}",
            "occurs": lambda record: f"{record.times:,}\u00a0×",
        },
    )


def duplicates(report: Report, most: int) -> Table:
    """Return the number of duplicates for each pair of inputs.

    The first input holds the duplicates. The second input holds their first copies.

    most: largest number of rows; the rows with the most duplicates are kept
    """
    return table_of(
        sorted(report.duplicates, key=lambda group: -group.records)[:most],
        {
            "duplicates in": lambda group: Name(group.source),
            "first copy in": lambda group: Name(group.original),
            "records": lambda group: f"{group.records:,}",
        },
        words=2,
        left_out=max(0, len(report.duplicates) - most),
    )


def options(report: Report) -> list[tuple[str, str]]:
    """Return the name and value of each option, and of the source and digests of a dataset."""
    options = asdict(report.settings)
    marks = {
        "where": options.pop("where"),
        "source release": report.source_release,
        "licence": report.license,
        "generation": report.generation,
        "retired records": report.retired or None,
        "build": report.build,
        "parent": report.parent,
        "manifest digest": report.manifest_digest,
    }
    return [
        (name.replace("_", "-"), f"{value:,}" if isinstance(value, int) else str(value))
        for name, value in options.items()
    ] + [(name, Name(value)) for name, value in marks.items() if value is not None]


def changes(both: Comparison) -> Table:
    """Return all compared numbers, except numbers that are 0 or missing in both reports."""
    return table_of(
        (number for number in both.changes if number.a or number.b),
        {
            "": lambda number: number.name.replace("_", " "),
            "A": lambda number: _changed(number.name, number.a),
            "B": lambda number: _changed(number.name, number.b),
            "change": _difference,
        },
    )


def _difference(number: Change) -> str:
    if _is_share(number.name) and number.a is not None and number.b is not None:
        return points(number.b - number.a)
    return "" if number.change is None else change(number.change)


def _is_share(name: str) -> bool:
    return name.startswith("waste_") or name.endswith("_fill")


def _changed(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if _is_share(name):
        return percent(value)
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"


def option_changes(both: Comparison) -> Table:
    """Return the options that differ between the two reports."""
    return table_of(
        both.settings,
        {
            "option": lambda option: option.name.replace("_", "-"),
            "A": lambda option: Name(option.a),
            "B": lambda option: Name(option.b),
        },
        words=3,
    )
