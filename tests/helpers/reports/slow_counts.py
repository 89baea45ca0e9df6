"""Count records by the values that their headers state, with simple loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.helpers.oracles.slow_headers import Stated, stated


@dataclass
class Counted:
    """A record: the values in its header, its length in residues, and whether it was kept."""

    stated: Stated
    residues: int
    kept: bool


def of_title(title: str, residues: int, kept: bool) -> Counted:
    identifier, _, description = title.partition(" ")
    return Counted(stated(identifier.encode(), description.encode()), residues, kept)


def header_counts(records: list[Counted]) -> dict[str, Any]:
    """Return the field `headers` of a report."""
    taxa = {taxon for record in records if (taxon := _taxon(record)) is not None}
    by_taxon = [_taxon_row(records, taxon) for taxon in taxa]
    by_taxon.sort(
        key=lambda row: (
            *(-row["kept"], -row["records"], row["taxid"] is None, row["taxid"]),
            row["organism"],
        )
    )
    databases = {record.stated.database for record in records}
    levels = {record.stated.pe for record in records}
    kinds = {record.stated.fragment for record in records}
    return {
        "databases": sorted(
            (_group(records, "database", value) for value in databases),
            key=lambda row: (-row["kept"], row["value"] is None, row["value"]),
        ),
        "existence": [_group(records, "pe", level) for level in sorted(levels, key=_none_last)],
        "fragments": [_group(records, "fragment", kind) for kind in sorted(kinds, reverse=True)],
        "taxa": by_taxon[:20],
        "distinct_taxa": len(taxa),
        "without_taxon": _counts(record for record in records if _taxon(record) is None),
    }


def _none_last(value: int | None) -> int:
    return 99 if value is None else value


def _counts(records: Iterable[Counted]) -> dict[str, int]:
    found = list(records)
    kept = [record.residues for record in found if record.kept]
    return {
        "records": len(found),
        "residues": sum(record.residues for record in found),
        "kept": len(kept),
        "residues_kept": sum(kept),
    }


def _group(records: list[Counted], field: str, value: Hashable) -> dict[str, Any]:
    counts = _counts(record for record in records if getattr(record.stated, field) == value)
    return {"value": value, **counts}


def _taxon(record: Counted) -> int | str | None:
    """Return the taxid or, if the header states no taxid, the organism."""
    found = record.stated
    if found.taxid is not None:
        return found.taxid
    return None if found.organism is None else found.organism.decode()


def _taxon_row(records: list[Counted], taxon: int | str) -> dict[str, Any]:
    found = [record for record in records if _taxon(record) == taxon]
    names = Counter(
        record.stated.organism.decode() for record in found if record.stated.organism is not None
    )
    most = min(names, key=lambda name: (-names[name], name), default=None)
    taxid = taxon if isinstance(taxon, int) else None
    return {"taxid": taxid, "organism": most, **_counts(found)}
