"""The figure about the organisms that headers state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pipeline.report.html.figure import Figure, labelled
from pipeline.report.html.plots import Bar, Bars
from pipeline.report.model import Report
from pipeline.report.model_headers import Taxon
from pipeline.report.render.numerals import percent
from pipeline.report.render.printable import shortened
from schemas.records import Status
from schemas.text.phrases import plural

_SHOWN: Final = 5
"""Largest number of organisms with a bar."""


def taxa(report: Report) -> Figure | None:
    """Show the organisms with the most kept records. Return None if no header states any."""
    kept = report.by_status[Status.KEPT]
    if report.headers is None or not report.headers.taxa or not kept:
        return None
    found = report.headers.taxa
    bars = list(_bars(found[:_SHOWN], kept))
    return Figure(
        key="taxa",
        title=f"{_name(found[0])} has {bars[0].words} of the kept records",
        words=f"The organisms with the most kept records, of {report.headers.distinct_taxa:,} in "
        "all. Each bar stands for all kept records. Its coloured part is the organism's share.",
        plot=Bars(
            bars=bars,
            label=labelled("Share of kept records", (f"{bar.name}: {bar.words}" for bar in bars)),
        ),
    )


def _bars(found: Iterable[Taxon], kept: int) -> Iterable[Bar]:
    for taxon in found:
        taxid = "" if taxon.taxid is None else f", taxid {taxon.taxid}"
        yield Bar(
            name=_name(taxon),
            words=percent(taxon.kept / kept),
            share=taxon.kept / kept,
            colour="c1",
            below=f"{plural(taxon.kept, 'record')}, {taxon.residues_kept:,} residues{taxid}",
        )


def _name(taxon: Taxon) -> str:
    return shortened(taxon.organism or f"taxid {taxon.taxid}", 30)
