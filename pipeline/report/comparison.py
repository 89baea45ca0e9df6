"""The data model of a comparison: two reports side by side, and what differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.report.model import SCHEMA, Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One number of both reports. change: (b − a) / a; None if a is 0 or either is missing."""

    name: str
    a: float | None
    b: float | None
    change: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingChange:
    """An option whose values differ."""

    name: str
    a: str
    b: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Distinct sequences by the hash of all their residues; left-out records count too.

    residues_both: residues of the sequences in both, each counted once
    """

    only_a: int
    only_b: int
    both: int
    residues_both: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two reports side by side. related: `child` if b was made from a, by their manifests."""

    a: Report
    b: Report
    related: Literal["same", "child", "parent", "none"]
    changes: tuple[Change, ...]
    settings: tuple[SettingChange, ...]
    overlap: Overlap
    kind: Literal["comparison"] = "comparison"
    schema: int = SCHEMA
