"""What surrounds the figures of a page: heading, the numbers at a glance, the last lines."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.report.html.markup import Child, Markup, name, tag
from pipeline.report.model import Report
from pipeline.report.render.numerals import about, percent, plural, size


def heading(eyebrow: str, title: Child, lead: Child) -> Markup:
    """The top of a page."""
    return tag(
        "header",
        tag("p", eyebrow, class_="eyebrow"),
        tag("h1", title),
        tag("p", lead, class_="lead"),
    )


def tiles(entries: Iterable[tuple[str, str, str]]) -> Markup:
    """Numbers at a glance: what it is, the number, a remark."""
    return tag(
        "dl",
        [
            tag("div", tag("dt", what), tag("dd", number), tag("dd", remark), class_="tile")
            for what, number, remark in entries
        ],
        class_="tiles",
    )


def report_heading(report: Report) -> Markup:
    """What this is a report of, and its gist in two sentences."""
    eyebrow = (
        f"dataset report · generation {report.generation}"
        if report.kind == "dataset"
        else "FASTA report · before preprocessing"
    )
    return heading(eyebrow, name(report.name), _gist(report))


def _gist(report: Report) -> list[Child]:
    buckets, places = (
        sum(split.buckets for split in report.splits),
        {way.name: way.places for way in report.waste},
    )
    verb = "packed into" if report.kind == "dataset" else "that would pack into"
    gist: list[Child] = [
        tag("b", plural(report.records, "record")),
        f" from {plural(len(report.inputs), 'input')}, {verb} ",
        tag("b", plural(buckets, "bucket")),
        f" of {report.settings.capacity:,} tokens.",
    ]
    if places.get("packed"):
        gist += [
            f" Padded to {report.settings.max_seq_len:,} each, they would take ",
            tag("b", f"{places['bshd'] / places['packed']:.1f} times"),
            " as many token places.",
        ]
    return gist


def report_tiles(report: Report) -> Markup:
    """Records, residues, tokens, buckets, fill, padding."""
    kept, duplicates = report.by_status["kept"], report.by_status["duplicate"]
    left_out = report.records - kept - duplicates
    buckets, shards = sum(s.buckets for s in report.splits), sum(s.shards for s in report.splits)
    room = buckets * report.settings.capacity
    padded = next((way for way in report.waste if way.name == "bshd"), None)
    stored = (
        sum(s.bytes for s in report.splits)
        if report.prediction is None
        else report.prediction.bytes
    )
    return tiles(
        (
            (
                "Records in",
                f"{report.records:,}",
                f"{plural(duplicates, 'duplicate')}, {left_out:,} left out",
            ),
            (
                "Kept",
                percent(kept / report.records) if report.records else "none",
                plural(kept, "record"),
            ),
            (
                "Residues in",
                about(report.residues_in),
                f"{about(report.residues_kept)} {'in' if report.kind == 'dataset' else 'for'} buckets",
            ),
            (
                "Tokens",
                about(report.tokens),
                ", ".join(f"{about(s.tokens)} {s.name}" for s in report.splits),
            ),
            (
                "Buckets" if report.prediction is None else "Buckets, forecast",
                f"{buckets:,}",
                f"{plural(shards, 'shard')}, {size(stored)}",
            ),
            (
                "Fill" if report.prediction is None else "Fill, forecast",
                percent(report.tokens / room) if room else "none",
                f"padded rows: {percent(1 - padded.waste)}" if padded else "",
            ),
        )
    )


def footer(*reports: Report) -> Markup:
    """What wrote this, and where numbers come from."""
    report = reports[0]
    of_residues = {"buckets": "residues in buckets", "input": "residues that came in"}[
        report.composition.over
    ]
    return tag(
        "footer",
        tag(
            "p",
            f"thdpack {report.thdpack} · report schema {report.schema} · composition counts {of_residues} · background: {report.composition.background_source}",
        ),
        tag(
            "p",
            "Every number here is in thdpack stats --json, and the tables in --csv. This file fetches nothing and runs no script.",
        ),
    )
