"""The data model of coverage: how much of the kept records the first variants contain."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterCoverage:
    """Number of cluster members that the first variants contain (`--sample-clusters`).

    clusters: number of clusters
    members: number of kept records in clusters
    shown: number of members that are in at least one of the first n variants, by n. The keys n are
      1, 2, 4, … and the number of variants
    """

    clusters: int
    members: int
    shown: dict[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """Number of residues that the first variants of a dataset contain.

    variants: number of variants
    residues: number of residues of kept records, before cropping
    shown: number of these residues that are in a bucket of at least one of the first n variants, by
      n. The keys n are 1, 2, 4, … and the number of variants
    sampled: coverage of clusters; None without --sample-clusters
    """

    variants: int
    residues: int
    shown: dict[int, int]
    sampled: ClusterCoverage | None = None
