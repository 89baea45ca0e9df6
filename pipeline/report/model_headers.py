"""The data model of a report's counts by database, taxon, protein existence and fragment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TOP_TAXA: Final = 20
"""Largest number of taxa in a report."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Numbers of records and of residues before cropping.

    records, residues: over all input records
    kept, residues_kept: over the kept records
    """

    records: int
    residues: int
    kept: int
    residues_kept: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Group(Counts):
    """The records that have one value in a column of records/.

    value: the value; None for records whose header does not state it
    """

    value: str | int | bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Taxon(Counts):
    """The records of one taxon.

    taxid: NCBI taxonomy id; None if headers state only the name of the taxon
    organism: name that most of the taxon's records state; None if headers state only the taxid
    """

    taxid: int | None
    organism: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderCounts:
    """Counts of records by values from their headers.

    databases: a group for each database, in descending order of kept records
    existence: a group for each level of protein existence, 1 to 5 and None, in this order
    fragments: a group for fragments (True), and a group for all other records (False)
    taxa: the taxa with the most kept records, at most TOP_TAXA, in descending order of kept
      records
    distinct_taxa: number of all taxa
    without_taxon: counts of the records whose headers state neither a taxid nor an organism
    """

    databases: tuple[Group, ...]
    existence: tuple[Group, ...]
    fragments: tuple[Group, ...]
    taxa: tuple[Taxon, ...]
    distinct_taxa: int
    without_taxon: Counts
