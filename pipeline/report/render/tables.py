"""The tables that the terminal and the page share: their columns and the format of their cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, TypeVar

from pipeline.report.comparison import Comparison
from pipeline.report.model import RecordNote, Report
from pipeline.report.render.numerals import change, duration, percent, size
from schemas.records import Status

RELATED: Final = {
    "same": "Both are the same build.",
    "child": "The second was made from the first.",
    "parent": "The first was made from the second.",
    "none": "Nothing says that one was made from the other.",
}
"""Meaning of `Comparison.related`."""

_Entry = TypeVar("_Entry")
_Columns = Mapping[str, Callable[[_Entry], str]]
"""Text of each column's cells."""


class Name(str):
    """A name from a file. Renderers escape it or make it printable."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text.

    head: names of the columns; the terminal breaks one at its line feed
    rows: one cell for each column
    words: number of columns, from the left, that hold text; the others hold numbers
    left_out: number of rows that are not shown
    """

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: int = 1
    left_out: int = 0


def splits(report: Report) -> Table:
    """Return the size of each split and the statistics of its buckets."""
    return _table(
        report.splits,
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
    return _table(
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
    """Return the sources of tokens/s; the last column of `budget` counts them from 1."""
    return list(dict.fromkeys(row.source for row in report.budget.rows))


def budget(report: Report) -> Table:
    """Return the time that each preset trains."""
    sources = budget_sources(report)
    return _table(
        report.budget.rows,
        {
            "model": lambda row: row.preset,
            "precision": lambda row: row.precision,
            "tokens/s": lambda row: f"{row.tokens_per_second:,.0f}",
            "one epoch": lambda row: duration(row.epoch_gpu_hours),
            "whole run": lambda row: f"{row.run_gpu_hours:,.0f} GPU-hours",
            "epochs\nof a run": lambda row: f"{row.epochs:,.1f}",
            "source": lambda row: f"{sources.index(row.source) + 1}",
        },
        words=2,
    )


def inputs(report: Report, most: int) -> Table:
    """Return the fate of the records of at most `most` inputs, and of all."""
    used = [status for status in Status if report.by_status[status]]
    table = _table(
        report.inputs[:most],
        {
            "input": lambda one: Name(one.name),
            "bytes": lambda one: size(one.bytes),
            "records": lambda one: f"{one.records:,}",
            "residues": lambda one: f"{one.residues:,}",
        }
        | {s.replace("_", " "): lambda one, s=s: f"{one.by_status[s]:,}" for s in used},
        left_out=max(0, len(report.inputs) - most),
    )
    if len(report.inputs) <= 1:
        return table
    stored = size(sum(one.bytes for one in report.inputs))
    fates = (f"{report.by_status[status]:,}" for status in used)
    total = ("all", stored, f"{report.records:,}", f"{report.residues_in:,}", *fates)
    return replace(table, rows=[*table.rows, total])


def letters(report: Report) -> Table:
    """Return the letters that occur, without the standard twenty."""
    letters = report.composition.letters
    return _table(
        (one for one in letters if one.kind != "standard" and one.count),
        {
            "letter": lambda one: one.letter,
            "kind": lambda one: one.kind,
            "residues": lambda one: f"{one.count:,}",
            "share": lambda one: percent(one.share),
        },
        words=2,
    )


def longest(report: Report) -> Table:
    """Return the longest records, with their inputs if there are several."""
    several = len(report.inputs) > 1
    source: _Columns[RecordNote] = {"input": lambda one: Name(one.source)} if several else {}
    return _table(
        report.longest,
        {"id": lambda one: Name(one.id), **source, "residues": lambda one: f"{one.residues:,}"},
        words=2 if several else 1,
    )


def repeated(report: Report) -> Table:
    """Return the sequences that occur most often."""
    return _table(
        report.repeated,
        {
            "id of the first": lambda one: Name(one.id),
            "residues": lambda one: f"{one.residues:,}",
            "came in": lambda one: f"{one.times:,}\u00a0×",
        },
    )


def duplicates(report: Report, most: int) -> Table:
    """Return the inputs of duplicates and of their first copies: the `most` largest groups."""
    return _table(
        sorted(report.duplicates, key=lambda one: -one.records)[:most],
        {
            "duplicates in": lambda one: Name(one.source),
            "first copy in": lambda one: Name(one.original),
            "records": lambda one: f"{one.records:,}",
        },
        words=2,
        left_out=max(0, len(report.duplicates) - most),
    )


def options(report: Report) -> list[tuple[str, str]]:
    """Return the options by name, then the generation and digests of a dataset."""
    options = asdict(report.settings)
    marks = {
        "generation": report.generation,
        "build": report.build,
        "parent": report.parent,
        "manifest digest": report.manifest_digest,
    }
    return [
        (name.replace("_", "-"), f"{value:,}" if isinstance(value, int) else str(value))
        for name, value in options.items()
    ] + [(name, Name(value)) for name, value in marks.items() if value is not None]


def changes(both: Comparison) -> Table:
    """Return every number that is not 0 in both reports."""
    return _table(
        (one for one in both.changes if one.a or one.b),
        {
            "": lambda one: one.name.replace("_", " "),
            "A": lambda one: _changed(one.name, one.a),
            "B": lambda one: _changed(one.name, one.b),
            "change": lambda one: "" if one.change is None else change(one.change),
        },
    )


def _changed(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name.startswith("waste_") or name.endswith("_fill"):
        return percent(value)
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"


def option_changes(both: Comparison) -> Table:
    """Return the options that differ."""
    return _table(
        both.settings,
        {
            "option": lambda one: one.name.replace("_", "-"),
            "A": lambda one: one.a,
            "B": lambda one: one.b,
        },
        words=3,
    )


def _table(
    entries: Iterable[_Entry],
    columns: _Columns[_Entry],
    *,
    words: int = 1,
    left_out: int = 0,
) -> Table:
    rows = [tuple(cell(entry) for cell in columns.values()) for entry in entries]
    return Table(tuple(columns), rows, words, left_out)
