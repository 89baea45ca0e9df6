"""Facts about retired records that `thdpack append` shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RetireCounts:
    """Result of --retire.

    records: number of records that this append retired
    kept: number of these records that are kept
    earlier: number of listed records that an earlier generation had already retired
    unknown: number of ids that no record has
    unknown_ids: some of these ids
    """

    records: int
    kept: int
    earlier: int
    unknown: int
    unknown_ids: tuple[str, ...]
