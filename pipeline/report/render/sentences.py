"""Sentences that the terminal report and the HTML page share."""

from __future__ import annotations

from pipeline.report.model import Report
from pipeline.report.render.numerals import about, percent
from schemas.models import FEW_EPOCHS
from schemas.records import Status
from schemas.text.phrases import plural


def longer_records(report: Report) -> str:
    """Return a sentence about the records that do not fit into max_seq_len."""
    found, kept = report.lengths, report.by_status[Status.KEPT]
    share = percent(found.cropped / kept) if kept else "none"
    many = f"{plural(found.cropped, 'kept record')} ({share})"
    if report.settings.long == "split":
        return f"Records longer than {found.crop:,} residues are cut into pieces: {many}."
    if report.settings.long == "drop":
        out = plural(report.by_status[Status.TOO_LONG], "record")
        return f"Records longer than {found.crop:,} residues are left out: {out}."
    cropped = about(found.residues_cropped)
    where = " at a random place" if report.settings.long == "crop" else ""
    return (
        f"Records longer than {found.crop:,} residues are cropped{where}: {many}. "
        f"Cropping removes {cropped} residues.{_coverage(report)}"
    )


def _coverage(report: Report) -> str:
    """Return a sentence about what the variants show together; "" if it is not known."""
    found = report.coverage
    if found is None or not found.residues:
        return ""
    shares = {number: percent(shown / found.residues) for number, shown in found.shown.items()}
    of = f" 1 variant shows {shares.pop(1)} of the residues of kept records"
    return ", ".join((of, *(f"{number} show {share}" for number, share in shares.items()))) + "."


def similar_to(report: Report) -> str:
    """Return a title for the table of entries that are similar to kept records."""
    found = next(file.similar for file in report.against if file.similar is not None)
    return (
        f"entries similar to kept records: identity ≥ {found.identity:g}, "
        f"coverage ≥ {found.coverage:g}"
    )


def pooled_splits(report: Report) -> str:
    """Return a sentence about the table of ways of batching, if several splits have buckets."""
    if sum(bool(split.buckets) for split in report.splits) < 2:
        return ""
    return "This packing pools all splits; the last bucket of each split may be partly empty."


def small_data(report: Report) -> str:
    """Return a sentence if the data is too small for a whole published run, "" otherwise."""
    budget = report.budget
    if not budget.rows or not budget.is_small:
        return ""
    epochs = about(min(row.epochs for row in budget.rows))
    return (
        f"A whole published run would be at least {epochs} epochs of this data. To avoid "
        f"memorizing the data, train about {FEW_EPOCHS} epochs from published weights "
        "(--init-from)."
    )
