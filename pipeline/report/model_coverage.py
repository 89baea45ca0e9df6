"""The data model of coverage: what the variants of a dataset show of its kept records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterCoverage:
    """What the first variants of a dataset show of clusters (`--sample-clusters`).

    clusters: number of clusters
    members: number of kept records in clusters
    shown: for 1, 2, 4, … and all variants, the number of members that are in at least one of the
      first variants
    """

    clusters: int
    members: int
    shown: dict[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """What the first variants of a dataset show together.

    variants: number of variants
    residues: number of residues of kept records, before cropping
    shown: for 1, 2, 4, … and all variants, the number of these residues that are in at least one
      bucket of the first variants
    sampled: coverage of clusters; None without --sample-clusters
    """

    variants: int
    residues: int
    shown: dict[int, int]
    sampled: ClusterCoverage | None = None
