"""Tables that count records by values from their headers: database, protein existence, taxon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pipeline.report.model_headers import Counts, Group, HeaderCounts, Taxon
from pipeline.report.render.table import Columns, Name, Table, table_of
from schemas.text.phrases import plural

_EXISTENCE: Final = {
    1: "1 protein",
    2: "2 transcript",
    3: "3 homology",
    4: "4 predicted",
    5: "5 uncertain",
}
"""UniProt's levels of protein existence."""
_COUNTS: Columns[Counts] = {
    "records": lambda counts: f"{counts.records:,}",
    "residues": lambda counts: f"{counts.residues:,}",
    "kept": lambda counts: f"{counts.kept:,}",
    "residues kept": lambda counts: f"{counts.residues_kept:,}",
}


def headers(found: HeaderCounts) -> Table:
    """Count records by database, by level of protein existence, and by whether they are fragments.

    If no header states a database, the table has no rows for databases. The same holds for levels
    and fragments.
    """
    kinds: tuple[tuple[str, tuple[Group, ...], Callable[[Group], str]], ...] = (
        ("database", found.databases, lambda group: str(group.value or "not stated")),
        ("existence", found.existence, lambda group: _existence(group.value)),
        ("fragment", found.fragments, lambda group: "yes" if group.value else "no"),
    )
    rows = [
        (kind, name(group), group)
        for kind, groups, name in kinds
        if any(group.value for group in groups)
        for group in groups
    ]
    return table_of(
        rows,
        {"stated": lambda row: row[0], "value": lambda row: row[1]}
        | {name: lambda row, cell=cell: cell(row[2]) for name, cell in _COUNTS.items()},
        words=2,
    )


def _existence(value: str | int | None) -> str:
    return "not stated" if value is None else _EXISTENCE.get(int(value), str(value))


def taxa(found: HeaderCounts) -> Table:
    """Return the taxa with the most kept records."""
    names: Columns[Taxon] = {
        "organism": lambda taxon: Name(taxon.organism or "not stated"),
        "taxid": lambda taxon: "–" if taxon.taxid is None else str(taxon.taxid),
    }
    return table_of(found.taxa, {**names, **_COUNTS})


def other_taxa(found: HeaderCounts) -> str:
    """Return a phrase about the records that `taxa` does not show; "" if it shows all."""
    rest, without = found.distinct_taxa - len(found.taxa), found.without_taxon.records
    more = plural(rest, "more organism") if rest else ""
    none = f"{plural(without, 'record')} without an organism" if without else ""
    return " and ".join(filter(None, (more, none)))
