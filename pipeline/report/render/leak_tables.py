"""Tables of sequences that training and evaluation share, and of excluded records."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.report.model import Report
from pipeline.report.model_leaks import FileOverlap
from pipeline.report.render.table import Name, Table, table_of
from pipeline.report.render.tables import shown_splits
from schemas.records import Status


def leaks(report: Report) -> Table:
    """Return the numbers of sequences and of clusters that each pair of splits shares."""
    shown = {split.name for split in shown_splits(report)}
    return table_of(
        [found for found in report.leaks if shown.issuperset(found.splits)],
        {
            "splits": lambda found: " and ".join(found.splits),
            "compared": lambda found: found.of,
            "in both": lambda found: f"{found.shared:,}",
            "records of\nthe first": lambda found: f"{found.records[0]:,}",
            "records of\nthe second": lambda found: f"{found.records[1]:,}",
        },
        words=2,
    )


def exclusions(report: Report) -> Table:
    """Return the number of records that --exclude left out, by file and kind."""
    return table_of(
        report.exclusions,
        {
            "file": lambda found: Name(found.file),
            "kind": lambda found: found.kind,
            "records": lambda found: f"{found.records:,}",
            "residues": lambda found: f"{found.residues:,}",
        },
        words=2,
    )


def against(report: Report) -> Table:
    """Return the number of entries of each file that are in the dataset."""
    used = [
        status
        for status in Status
        if status != Status.KEPT and any(file.by_status[status] for file in report.against)
    ]
    statuses = {status.replace("_", " "): _entries("by_status", status) for status in used}
    splits = {
        f"in {split.name}": _entries("in_splits", split.name) for split in shown_splits(report)
    }
    return table_of(
        report.against,
        {
            "file": lambda file: Name(file.name),
            "entries": lambda file: f"{file.entries:,}",
            **splits,
            "in any record": lambda file: f"{file.in_records:,}",
            **statuses,
        },
    )


def similar(report: Report) -> Table:
    """Return the numbers of entries and of kept records that MMseqs2 finds similar."""
    rows = []
    for file in report.against:
        if file.similar is not None:
            found = file.similar
            for split in shown_splits(report):
                name = split.name
                rows.append((file, name, found.in_splits[name], found.records[name]))
            rows.append((file, "any split", found.in_kept, sum(found.records.values())))
    return table_of(
        rows,
        {
            "file": lambda row: Name(row[0].name),
            "split": lambda row: row[1],
            "entries": lambda row: f"{row[0].entries:,}",
            "similar to\na record": lambda row: f"{row[2]:,}",
            "records similar\nto an entry": lambda row: f"{row[3]:,}",
        },
        words=2,
    )


def _entries(field: str, key: str) -> Callable[[FileOverlap], str]:
    """Return a function that formats the value of `key` in a mapping of a FileOverlap.

    field: name of the mapping
    """
    return lambda file: f"{getattr(file, field)[key]:,}"
