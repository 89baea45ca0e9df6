"""Texts about the records that --retire names."""

from __future__ import annotations

from pipeline.build.retire.retire_counts import RetireCounts
from pipeline.report.render.printable import printable
from schemas.text.phrases import plural


def retired_words(found: RetireCounts) -> str:
    """Return how many records an append retired."""
    text = f"{plural(found.records, 'record')} ({found.kept:,} of them kept)"
    if found.records:
        text += ", listed in retired/; readers do not skip them"
    if found.earlier:
        text += f"; {found.earlier:,} retired before"
    return text


def unknown_words(found: RetireCounts) -> str:
    """Return which ids of --retire no record has."""
    more = ", …" if found.unknown > len(found.unknown_ids) else ""
    match = "matches" if found.unknown == 1 else "match"
    names = ", ".join(map(printable, found.unknown_ids))
    return f"{plural(found.unknown, 'id')} of --retire {match} no record: {names}{more}"
