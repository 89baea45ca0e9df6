"""Write a report as JSON, and its tables as CSV. Numbers are not rounded.

JSON contains names unchanged. A spreadsheet would execute a CSV cell that starts with `=`, `+`, `-`
or `@`, and an id may be such a formula. Such a cell therefore gets a leading `'`. Control
characters in CSV are written as escape sequences, such as `\\x1b`.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from pipeline.report.comparison import Comparison
from pipeline.report.distributions import Distribution, bins
from pipeline.report.model import Report
from pipeline.report.model_coverage import Coverage
from pipeline.report.model_headers import Counts, HeaderCounts
from pipeline.report.model_leaks import FileOverlap, SharedValues, SimilarEntries
from pipeline.report.render.output_files import inside, write_text
from pipeline.report.render.printable import printable

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of a formula. Some spreadsheets also accept the full-width forms of `=+-@`."""


def to_json(report: Report | Comparison) -> str:
    """Return a JSON object and a newline. docs/reference/statistics.md describes the object."""
    return json.dumps(asdict(report), indent=1) + "\n"


def write_csv(report: Report | Comparison, folder: str) -> None:
    """Write each table as `<table>.csv`. For a comparison, also write its two reports to a/ and b/.

    Args:
        folder: path or URL of the folder to write to.
    Raises:
        ThdpackError: a file cannot be written.
    """
    if isinstance(report, Comparison):
        write_csv(report.a, inside(folder, "a"))
        write_csv(report.b, inside(folder, "b"))
    for name, rows in (
        _comparison_tables(report) if isinstance(report, Comparison) else _tables(report)
    ).items():
        write_text(inside(folder, f"{name}.csv"), _csv(rows))


Rows = list[dict[str, Any]]


def _comparison_tables(report: Comparison) -> dict[str, Rows]:
    return {
        "changes": _rows(report.changes),
        "settings": _rows(report.settings),
        "overlap": [asdict(report.overlap)],
    }


def _tables(report: Report) -> dict[str, Rows]:
    """Return the rows of each table, by the table's name. Tables without rows are left out."""
    tables = {
        "summary": [
            _scalars(report)
            | {f"records_{status}": count for status, count in report.by_status.items()}
        ],
        "settings": [asdict(report.settings)],
        "inputs": [_scalars(flow) | dict(flow.by_status) for flow in report.inputs],
        "lengths": [
            _scalars(report.lengths)
            | {f"p{p}": value for p, value in report.lengths.percentiles.items()}
        ],
        "length_histogram": _histogram(report.lengths.histogram),
        "composition": _rows(report.composition.letters),
        "splits": [_scalars(split) for split in report.splits],
        "waste": [_scalars(waste) for waste in report.waste],
        "budget": _rows(report.budget.rows),
        "longest": _rows(report.longest),
        "repeated": _rows(report.repeated),
        "duplicates": _rows(report.duplicates),
        **_header_tables(report.headers),
        "exclusions": _rows(report.exclusions),
        "leaks": [_leak(found) for found in report.leaks],
        "coverage": _coverage(report.coverage),
        "against": [_overlap(found) for found in report.against],
        "similar": [_similar(file, file.similar) for file in report.against if file.similar],
    }
    for split in report.splits:
        for name in ("fill", "cost", "sequences"):
            tables[f"{split.name}_{name}"] = _histogram(getattr(split, f"{name}_counts"))
    return {name: rows for name, rows in tables.items() if rows}


def _header_tables(found: HeaderCounts | None) -> dict[str, Rows]:
    names = ("databases", "existence", "fragments", "taxa")
    return {name: _groups(getattr(found, name)) for name in names} if found is not None else {}


def _coverage(found: Coverage | None) -> Rows:
    """Return a row for each number of variants."""
    if found is None:
        return []
    return [
        {"variants": number, "residues": found.residues, "shown": shown}
        | (
            {}
            if found.sampled is None
            else {"members": found.sampled.members, "members_shown": found.sampled.shown[number]}
        )
        for number, shown in found.shown.items()
    ]


def _groups(entries: Iterable[Counts]) -> Rows:
    """Return a row for each group of records, with the group's name before its counts."""
    counts = {field.name for field in fields(Counts)}
    return [dict(sorted(row.items(), key=lambda cell: cell[0] in counts)) for row in _rows(entries)]


def _leak(found: SharedValues) -> dict[str, Any]:
    pair = zip(("first", "second"), found.splits, found.records, strict=True)
    sides = [{name: split, f"records_{name}": records} for name, split, records in pair]
    return {"of": found.of, "shared": found.shared, **sides[0], **sides[1]}


def _overlap(found: FileOverlap) -> dict[str, Any]:
    in_splits = {f"in_{split}": count for split, count in found.in_splits.items()}
    return {name: value for name, value in _scalars(found).items() if name != "similar"} | {
        **in_splits,
        **found.by_status,
    }


def _similar(file: FileOverlap, found: SimilarEntries) -> dict[str, Any]:
    in_splits = {f"in_{split}": count for split, count in found.in_splits.items()}
    records = {f"records_of_{split}": count for split, count in found.records.items()}
    return {"name": file.name, "entries": file.entries} | _scalars(found) | in_splits | records


def _rows(entries: Iterable[Any]) -> Rows:
    return [asdict(entry) for entry in entries]


def _scalars(entry: Any) -> dict[str, Any]:
    """Return the fields of a dataclass whose values are numbers, strings or None."""
    values = {field.name: getattr(entry, field.name) for field in fields(entry)}
    return {
        name: value
        for name, value in values.items()
        if value is None or isinstance(value, str | int | float)
    }


def _histogram(values: Distribution) -> Rows:
    return [{"from": low, "below": high, "count": count} for low, high, count in bins(values)]


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Return a number, or text that no spreadsheet treats as a formula."""
    if not isinstance(value, str) or value == "-":  # a lone "-" is a residue, not a formula
        return value
    text = re.sub(r"[\t\n\r]", lambda found: f"\\x{ord(found.group()):02x}", printable(value))
    return f"'{text}" if value[:1] in _FORMULA or text.lstrip()[:1] in _FORMULA else text
