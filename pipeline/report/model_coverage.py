"""The data model of coverage: what the variants of a dataset show of its kept records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """What the first variants of a dataset show together.

    variants: number of variants
    residues: number of residues of kept records, before cropping
    shown: for 1, 2, 4, … and all variants, the number of these residues that are in at least one
      bucket of the first variants
    """

    variants: int
    residues: int
    shown: dict[int, int]
