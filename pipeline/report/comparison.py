"""The data model of a comparison: two reports, and the differences between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.report.model import SCHEMA, Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """The values of one number in both reports, A and B.

    a, b: value in A and in B; None if the report does not have this number
    change: (b − a) / a; None if a is 0 or if a or b is None
    """

    name: str
    a: float | None
    b: float | None
    change: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingChange:
    """An option that differs between the reports, with its value in A and in B."""

    name: str
    a: str
    b: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Numbers of distinct sequences, distinguished by the hash of all their residues.

    Records that the build left out are counted too.

    only_a, only_b, both: number of sequences in A only, in B only, and in both
    residues_both: number of residues of the sequences in both, each sequence counted once
    """

    only_a: int
    only_b: int
    both: int
    residues_both: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two reports and their differences.

    related: relation according to the manifests; `child` if b was made from a, `parent` if a was
      made from b
    """

    a: Report
    b: Report
    related: Literal["same", "child", "parent", "none"]
    changes: tuple[Change, ...]
    settings: tuple[SettingChange, ...]
    overlap: Overlap
    kind: Literal["comparison"] = "comparison"
    schema: int = SCHEMA
