"""Compute a report's length figures from a table of distinct lengths and their counts.

60 million proteins have only about 10,000 distinct lengths, so computing a figure takes at most
1 ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.report.distributions import Distribution
from pipeline.report.model import PERCENTILES, Lengths
from schemas.shard import CROPPING

_BINS: Final = 60
"""Approximate number of bins in the histogram of lengths."""
_TABLE: Final = 1 << 20
"""If the largest value is at most this number, or at most the number of values, the values are
counted in a table with one entry per number. Otherwise, they are sorted and counted."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Distinct values, each with the number of its occurrences.

    values: int64[K], the distinct values in ascending order
    counts: int64[K], number of occurrences of each value
    """

    values: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, values: NDArray[np.int64], counts: NDArray[np.int64] | None = None) -> Self:
        """Count equal values.

        values: int64[N], values in any order, with repetitions
        counts: int64[N], number of occurrences that each entry of `values` stands for; None means 1
        """
        if counts is None and values.max(initial=0) <= max(values.size, _TABLE):
            table = np.bincount(values)
            return cls(np.flatnonzero(table), table[table > 0])
        different, place = np.unique(values, return_inverse=True)
        totals = np.zeros(different.size, dtype=np.int64)
        np.add.at(totals, place, 1 if counts is None else counts)
        return cls(different.astype(np.int64), totals)

    def above(self, limit: int) -> Counted:
        """Return the values larger than `limit`, with their counts."""
        return Counted(self.values[self.values > limit], self.counts[self.values > limit])

    @property
    def number(self) -> int:
        return int(self.counts.sum())

    @property
    def total(self) -> int:
        return int(self.values @ self.counts)

    def percentile(self, percent: int) -> int:
        """Return the smallest v for which at least `percent` % of all values are ≤ v.

        Without values, return 0.
        """
        if not self.values.size:
            return 0
        rank = max(1, -(-percent * self.number // 100))
        return int(self.values[np.searchsorted(np.cumsum(self.counts), rank)])


def sequences_of(kept: Counted, *, most: int, long: str) -> Counted:
    """Return the lengths of the sequences that a build cuts from records.

    The returned lengths are in tokens, <cls> and <eos> included.

    Args:
        kept: lengths of the kept records, in residues.
        most: maximum number of residues that a sequence may have.
        long: treatment of records with more than `most` residues (see `Long`).
    """
    if long != "split":
        return Counted.of(np.minimum(kept.values, most) + 2, kept.counts)
    whole = int((kept.values // most) @ kept.counts)
    rests = kept.values % most
    has_rest = (rests > 0) & (kept.counts > 0)
    pieces, counts = np.append(rests[has_rest], most), np.append(kept.counts[has_rest], whole)
    return Counted.of(pieces[counts > 0] + 2, counts[counts > 0])


def lengths_report(all_in: Counted, kept: Counted, *, crop: int, long: str) -> Lengths:
    """Return the length figures of a report.

    Args:
        all_in: lengths of all input records, in residues.
        kept: lengths of the kept records, in residues before cropping.
        crop: maximum number of residues that a sequence may have.
        long: treatment of records with more than `crop` residues (see `Long`).
    """
    longer = kept.above(crop)
    return Lengths(
        records=all_in.number,
        shortest=int(all_in.values[0]) if all_in.values.size else 0,
        longest=int(all_in.values.max(initial=0)),
        mean=all_in.total / all_in.number if all_in.values.size else 0.0,
        percentiles={str(p): all_in.percentile(p) for p in PERCENTILES},
        histogram=histogram(all_in),
        crop=crop,
        cropped=longer.number,
        residues_cropped=longer.total - crop * longer.number if long in CROPPING else 0,
    )


def histogram(lengths: Counted) -> Distribution:
    """Count lengths up to percentile 99 in bins of a round width, and the others in one bin."""
    if not lengths.values.size:
        return Distribution(edges=(), counts=())
    longest, usual = int(lengths.values[-1]), lengths.percentile(99)
    width = _round_width(usual / _BINS)
    edges = np.arange(0, usual + width + 1, width)
    if edges[-1] <= longest:
        edges = np.append(edges, longest + 1)
    counts = np.bincount(
        np.searchsorted(edges, lengths.values, side="right") - 1,
        weights=lengths.counts,
        minlength=edges.size - 1,
    )
    return Distribution(edges=tuple(edges.tolist()), counts=tuple(counts.astype(np.int64).tolist()))


def _round_width(least: float) -> int:
    """Return the smallest of the widths 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20 … that is ≥ `least`.

    With widths of only 1, 2, 5, 10 …, some histograms would have only half as many bins.
    """
    scale = 1
    while True:
        for tenths in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80):
            if scale * tenths % 10 == 0 and scale * tenths >= 10 * least:
                return scale * tenths // 10
        scale *= 10
