"""A slow, simple implementation of `--exclude`. Tests compare builds with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.helpers.data.corpus import as_read
from tests.helpers.oracles.slow_headers import stated

KINDS = ("equal", "listed", "contains", "contained", "similar")
SHORTEST = 12
"""Minimum number of residues of a contained sequence."""

Found = tuple[str, str, str]
"""Kind, id of the matching entry, name of the file."""


@dataclass
class Excluded:
    """Content of the files of `--exclude`, by file name.

    fastas: (id, residues) of each sequence
    lists: ids
    tables: (query, target, identity, qstart, qend, tstart, tend) of each row
    """

    fastas: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    tables: dict[str, list[tuple[str, str, float, int, int, int, int]]] = field(
        default_factory=dict
    )


def names_of(header: str) -> list[str]:
    """Return id, accession and entry name of a record."""
    identifier, _, description = header.partition(" ")
    values = stated(identifier.encode(), description.encode())
    return [
        identifier,
        *(name.decode() for name in (values.accession or b"", values.name or b"")),
    ]


def match_of(
    header: str, residues: str, excluded: Excluded, identity: float, coverage: float
) -> tuple[int, int, bytes, str] | None:
    """Return the match that a build reports for a record; None if nothing matches.

    Returns:
        Index of the kind, number of the entry's residues, id of the entry, and name of the file.
    """
    found = []
    mine = as_read(residues)
    for file, entries in excluded.fastas.items():
        for name, other in ((name, as_read(other)) for name, other in entries):
            if other and mine == other:
                found.append(("equal", len(other), name, file))
            elif len(other) >= SHORTEST and other in mine:
                found.append(("contains", len(other), name, file))
            elif len(mine) >= SHORTEST and mine in other:
                found.append(("contained", len(other), name, file))
    names = names_of(header)
    for file, listed in excluded.lists.items():
        found += [("listed", 0, name, file) for name in names if name in listed]
    for file, rows in excluded.tables.items():
        for query, target, row_identity, qstart, qend, tstart, tend in rows:
            sides = ((query, target, qstart, qend), (target, query, tstart, tend))
            found += [
                ("similar", 0, other, file)
                for name, other, start, end in sides
                if name in names[:2]
                and row_identity >= identity
                and (abs(end - start) + 1) / len(mine) >= coverage
            ]
    return min(
        ((KINDS.index(kind), size, name.encode(), file) for kind, size, name, file in found),
        default=None,
    )


def expected(
    records: Sequence[tuple[str, str]],
    early: Sequence[str | None],
    excluded: Excluded,
    *,
    dedup: str,
    longest: int,
    identity: float = 0.3,
    coverage: float = 0.5,
) -> list[tuple[str, Found | None]]:
    """Return the status and the match of each record.

    Args:
        records: (header, residues) of each record.
        early: status of each record that is left out before --exclude applies; None for others.
        longest: maximum number of residues of a sequence after cropping. `--dedup cropped` compares
            only this many residues, from the start of a record.
    """
    keys = [as_read(residues)[: longest if dedup == "cropped" else None] for _, residues in records]
    best: dict[str, tuple[int, int, bytes, str]] = {}
    for (header, residues), status, key in zip(records, early, keys, strict=True):
        match = match_of(header, residues, excluded, identity, coverage) if status is None else None
        if match is not None:
            best[key] = min(match, best.get(key, match))
    found: list[tuple[str, Found | None]] = []
    seen = set()
    for status, key in zip(early, keys, strict=True):
        if status is not None:
            found.append((status, None))
        elif key in best:
            kind, _, name, file = best[key]
            found.append(("excluded", (KINDS[kind], name.decode(), file)))
        else:
            found.append(("duplicate" if dedup != "none" and key in seen else "kept", None))
            seen.add(key)
    return found
