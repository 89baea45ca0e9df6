"""Sentences that the terminal report and the HTML page share."""

from __future__ import annotations

from pipeline.report.model import Report
from pipeline.report.model_leaks import FileOverlap
from pipeline.report.render.numerals import about, percent
from pipeline.report.render.printable import printable
from schemas.models import FEW_EPOCHS
from schemas.records import Status
from schemas.text.phrases import plural, plural_of


def variants(report: Report) -> str:
    """Return a sentence about the variants of a dataset; "" if it has only one."""
    found = report.coverage
    if found is None or found.variants == 1:
        return ""
    return (
        f"The dataset has {found.variants:,} variants, and each epoch reads the next one. "
        "Numbers of shards, buckets, sequences and tokens are those of variant 0."
    )


def longer_records(report: Report) -> str:
    """Return a sentence about the records that do not fit into max_seq_len."""
    found, kept = report.lengths, report.by_status[Status.KEPT]
    share = percent(found.cropped / kept) if kept else "none"
    many = f"{plural(found.cropped, 'kept record')} ({share})"
    if (drawn := _drawn_records(report)) is not None:
        share = percent(found.cropped / drawn) if drawn else "none"
        many = f"{plural(found.cropped, 'record')} of variant 0 ({share})"
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
    """Return a sentence about the residues that the variants contain; "" if it is not known."""
    found = report.coverage
    if found is None or not found.residues or found.sampled is not None:
        return ""
    return " " + _shares(found.shown, found.residues, "of the residues of kept records")


def sampled_clusters(report: Report) -> str:
    """Return sentences about the coverage of clusters; "" without --sample-clusters."""
    found = report.coverage
    if found is None or found.sampled is None:
        return ""
    first = f"Each variant has one record of each of {plural(found.sampled.clusters, 'cluster')}."
    if not found.sampled.members:
        return first
    members = f"of the {plural(found.sampled.members, 'kept record')} in clusters"
    of_members = _shares(found.sampled.shown, found.sampled.members, members)
    of_residues = _shares(found.shown, found.residues, "of the residues of kept records")
    return f"{first} {of_members} {of_residues}"


def _shares(shown: dict[int, int], total: int, of: str) -> str:
    """Return a sentence with the share of `total` that each number of variants contains."""
    shares = {number: percent(count / total) for number, count in shown.items()}
    if len(shown) > 1 and len(set(shown.values())) == 1:
        return f"Each variant shows the same {shares[1]} {of}."
    first = f"1 variant shows {shares.pop(1)} {of}"
    return ", ".join((first, *(f"{number} show {share}" for number, share in shares.items()))) + "."


def _drawn_records(report: Report) -> int | None:
    """Return the number of records of variant 0; None without --sample-clusters."""
    found = report.coverage
    if found is None or found.sampled is None:
        return None
    return report.by_status[Status.KEPT] - found.sampled.members + found.sampled.clusters


def verdict(file: FileOverlap) -> str:
    """Return a sentence that says how many entries of a file of --against are in train."""
    found, name = file.in_splits.get("train", 0), printable(file.name)
    entries = plural_of("entry", "entries", file.entries)
    alike = ""
    if file.similar is not None:
        alike = f" Similar to a record in train: {file.similar.in_splits.get('train', 0):,}."
    if not found:
        return f"{name}: no sequence of its {entries} is in train.{alike}"
    remedy = "--exclude leaves them out of a build."
    return f"{name}: of its {entries}, {found:,} are in train; {remedy}{alike}"


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


def train_spread(report: Report) -> str:
    """Return a sentence about the spread of this packing, if the train split and another split
    have buckets."""
    if not pooled_splits(report) or not any(s.name == "train" and s.buckets for s in report.splits):
        return ""
    return "The spread and max / mean of this packing are those of the train split's buckets."


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
