"""The data model of leaks and of excluded records.

A leak is a sequence or a cluster that two splits share. An entry of another file, such as a test
set, is also a leak if the dataset contains it. A build excludes records to avoid leaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedValues:
    """Sequences or clusters that two splits share. A dataset that a build wrote has no such leak.

    of: what is compared: "sequences" or "clusters". Two records have the same sequence if all their
      residues before cropping are equal
    splits: names of the two splits
    shared: number of distinct sequences, or of clusters, in both splits
    records: for each of the two splits, the number of kept records that have a shared sequence, or
      are in a shared cluster
    """

    of: Literal["sequences", "clusters"]
    splits: tuple[str, str]
    shared: int
    records: tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exclusion:
    """Records that the build left out because of one file of `--exclude`, for one reason.

    kind: reason, one of `schemas.records.EXCLUSION_KINDS`
    file: name of the file
    records, residues: number of records, and number of their residues before cropping
    """

    kind: str
    file: str
    records: int
    residues: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SimilarEntries:
    """Entries of a file that MMseqs2 finds similar to kept records.

    Records are compared after cropping, and entries are compared in full.

    identity, coverage: minimum values, from 0 to 1. A pair counts if the coverage of either of the
      two sequences reaches the minimum
    in_splits: for each split, the number of entries that are similar to one of its kept records
    in_kept: number of entries that are similar to a kept record
    records: for each split, the number of its kept records that are similar to an entry
    """

    identity: float
    coverage: float
    in_splits: Mapping[str, int]
    in_kept: int
    records: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileOverlap:
    """Entries of a file of sequences that are also in the dataset.

    An entry is in a group of records if it has the same residues as a record of the group, before
    cropping. An entry may be in several groups.

    name: path or URL of the file, as given on the command line
    entries: number of entries in the file
    in_splits: for each split, the number of entries that are in its kept records
    in_records: number of entries that are in the input records, kept or not
    by_status: number of entries that are in the input records of each `schemas.records.Status`
    similar: entries that are similar to kept records; None without `mmseqs:` before the name
    """

    name: str
    entries: int
    in_splits: Mapping[str, int]
    in_records: int
    by_status: Mapping[str, int]
    similar: SimilarEntries | None = None
