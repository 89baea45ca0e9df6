"""The data model of a comparison of two reports, A and B."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.report.model import SCHEMA, Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Values of one number in the two reports.

    a, b: value in A and value in B; None if the report does not have this number
    change: (b − a) / a; None if a is 0 or if a or b is None
    """

    name: str
    a: float | None
    b: float | None
    change: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingChange:
    """An option that differs between the reports.

    a, b: value of the option in A and in B, as text
    """

    name: str
    a: str
    b: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Numbers of distinct sequences in the two reports.

    Two sequences are the same if the hashes of their residues, before cropping, are equal. The
    sequences of records that the build left out are counted, too.

    only_a, only_b, both: number of sequences in A only, in B only, and in both reports
    residues_both: number of residues of the sequences in both reports; a repeated sequence counts
      once
    """

    only_a: int
    only_b: int
    both: int
    residues_both: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two reports and their differences.

    related: relation that the manifests state: `same` if both datasets are the same build;
      `child` if b was made from a; `parent` if a was made from b; `none` if the manifests state no
      relation
    """

    a: Report
    b: Report
    related: Literal["same", "child", "parent", "none"]
    changes: tuple[Change, ...]
    settings: tuple[SettingChange, ...]
    overlap: Overlap
    kind: Literal["comparison"] = "comparison"
    schema: int = SCHEMA
