"""Exact statistics of a split's buckets, taken where they are written and added up over partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from schemas.manifest_entries import Histogram, SplitTotals

_COST_BINS = 1024
_FILL_BINS = 100


@dataclass(slots=True)
class SplitStatistics:
    """Sums and histograms over the buckets of one split; integers only, so that the order of adding never shows.

    capacity, longest: tokens of a bucket and of the longest sequence; they fix the bins.
    """

    capacity: int
    longest: int
    buckets: int = 0
    sequences: int = 0
    tokens: int = 0
    cost_sum: int = 0
    cost_square_sum: int = 0
    cost_max: int = 0
    seqs_max: int = 0
    pieces_max: int = 0
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def add_buckets(
        self, lengths: NDArray[np.int64], spans: NDArray[np.int64], bucket: NDArray[np.int64], tail: NDArray[np.int64], tail_pieces: NDArray[np.int64]
    ) -> None:
        """Count buckets.

        Args:
            lengths: int64[N], real tokens of each sequence.
            spans: int64[N], the same with length-multiple padding: what attention pays for.
            bucket: int64[N], the bucket of each, 0 … B - 1.
            tail: int64[B], padding tokens after the last sequence.
            tail_pieces: int64[B], sequences that the tail is cut into.
        """
        if tail.size == 0:
            return
        seqs = np.bincount(bucket, minlength=tail.size)
        tokens = np.bincount(bucket, weights=lengths, minlength=tail.size).astype(np.int64)
        cost = np.bincount(bucket, weights=spans * spans, minlength=tail.size).astype(np.int64)
        self.sequences += lengths.size
        self.tokens += int(tokens.sum())
        self.seqs_max = max(self.seqs_max, int(seqs.max()))
        self.pieces_max = max(self.pieces_max, int((seqs + tail_pieces).max()))
        for name, values in (("length", lengths), ("fill", tokens), ("sequences", seqs)):
            self._count(name, np.bincount(self._bin(name, values)))
        self.add_costs(cost)

    def add_costs(self, cost: NDArray[np.int64]) -> None:
        """Count buckets of which nothing but Σ length², int64[B], is of interest."""
        if cost.size == 0:
            return
        self.buckets += cost.size
        self.cost_sum += int(cost.sum())
        self.cost_square_sum += sum(c * c for c in cost.tolist())  # beyond 64 bits
        self.cost_max = max(self.cost_max, int(cost.max()))
        self._count("cost", np.bincount(self._bin("cost", cost)))

    def _bin(self, name: str, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return values * _FILL_BINS // self.capacity if name == "fill" else values // self._width(name)

    def _width(self, name: str) -> int:
        widths = {"length": -(-self.longest // 128), "fill": 1, "cost": -(-self.capacity * self.longest // _COST_BINS), "sequences": 1}
        return widths[name]

    def _count(self, name: str, more: NDArray[np.int64]) -> None:
        have = self.counts.get(name, np.zeros(0, dtype=np.int64))
        total = np.zeros(max(have.size, more.size), dtype=np.int64)
        total[: have.size] += have
        total[: more.size] += more
        self.counts[name] = total

    def add(self, other: SplitStatistics) -> None:
        """Add another part of the same split."""
        for name in ("buckets", "sequences", "tokens", "cost_sum", "cost_square_sum"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("cost_max", "seqs_max", "pieces_max"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for name, counts in other.counts.items():
            self._count(name, counts)

    def totals(self) -> SplitTotals:
        return SplitTotals(**{name: getattr(self, name) for name in SplitTotals.__dataclass_fields__})

    def histograms(self) -> dict[str, Histogram]:
        """`length` (tokens of a sequence), `fill` (percent of a bucket), `cost` (Σ length² of a bucket), `sequences` (in a bucket)."""
        found = {}
        for name, counts in self.counts.items():
            used = np.flatnonzero(counts)
            first, last = int(used[0]), int(used[-1])
            width = self._width(name)
            found[name] = Histogram(first=first * width, width=width, counts=tuple(counts[first : last + 1].tolist()))
        return found

    def to_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "counts"}
        return {**values, "counts": {name: counts.tolist() for name, counts in self.counts.items()}}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        counts = {name: np.array(counts, dtype=np.int64) for name, counts in values["counts"].items()}
        return cls(**{**values, "counts": counts})
