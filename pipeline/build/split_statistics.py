"""Exact statistics of a split's buckets. A bucket is a row of exactly `capacity` tokens.

Each task computes statistics of the buckets that it writes. The build adds up all statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from schemas.manifest_entries import Histogram, SplitTotals
from schemas.untrusted_json import Count, LargeCount

Binned = Literal["length", "fill", "cost", "sequences"]

_COST_BINS = 1024
_FILL_BINS = 100


@dataclass(slots=True)
class SplitStatistics:
    """Sums and histograms over the buckets of one split.

    All values are integers, so that the result does not depend on the order of additions. The tail
    of a bucket is the padding after its last sequence. The tail is cut into tail pieces of at most
    `longest` tokens.

    capacity: number of tokens per bucket
    longest: maximum number of tokens of a sequence, including its padding. `longest` and `capacity`
        determine the widths of the histogram bins.
    cost_sum, cost_square_sum, cost_max: sum, sum of squares and maximum of the buckets' attention
        costs; a bucket's cost is the Σ length² of its sequences
    seqs_max: largest number of sequences in a bucket
    pieces_max: largest number of sequences and tail pieces together in a bucket
    counts: number of values in each bin, for each histogram
    """

    capacity: Count
    longest: Count
    buckets: Count = 0
    sequences: Count = 0
    tokens: Count = 0
    cost_sum: LargeCount = 0
    cost_square_sum: LargeCount = 0
    cost_max: Count = 0
    seqs_max: Count = 0
    pieces_max: Count = 0
    counts: dict[Binned, list[Count]] = field(default_factory=dict)

    def add_buckets(
        self,
        lengths: NDArray[np.int64],
        spans: NDArray[np.int64],
        bucket: NDArray[np.int64],
        tail: NDArray[np.int64],
        tail_pieces: NDArray[np.int64],
    ) -> None:
        """Add B buckets with N sequences to all statistics.

        Args:
            lengths: int64[N], real tokens of each sequence.
            spans: int64[N], tokens of each sequence, including the padding that --length-multiple
                adds. Attention processes this padding, too.
            bucket: int64[N], bucket of each sequence, 0 … B - 1.
            tail: int64[B], number of padding tokens after the last sequence of each bucket.
            tail_pieces: int64[B], number of tail pieces of each bucket.
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
        binned: tuple[tuple[Binned, NDArray[np.int64]], ...] = (
            ("length", lengths),
            ("fill", tokens),
            ("sequences", seqs),
        )
        for name, values in binned:
            self._count(name, np.bincount(self._bin(name, values)))
        self.add_costs(cost)

    def add_costs(self, cost: NDArray[np.int64]) -> None:
        """Add B buckets. Update only the number of buckets and the statistics of attention cost.

        Args:
            cost: int64[B], Σ length² of each bucket.
        """
        if cost.size == 0:
            return
        self.buckets += cost.size
        self.cost_sum += int(cost.sum())
        self.cost_square_sum += sum(
            c * c for c in cost.tolist()
        )  # Python integers, because the sum may exceed 64 bits
        self.cost_max = max(self.cost_max, int(cost.max()))
        self._count("cost", np.bincount(self._bin("cost", cost)))

    def _bin(self, name: Binned, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return (
            values * _FILL_BINS // self.capacity if name == "fill" else values // self._width(name)
        )

    def _width(self, name: Binned) -> int:
        widths: dict[Binned, int] = {
            "length": -(-self.longest // 128),
            "fill": 1,
            "cost": -(-self.capacity * self.longest // _COST_BINS),
            "sequences": 1,
        }
        return widths[name]

    def _count(self, name: Binned, more: Sequence[int] | NDArray[np.int64]) -> None:
        have = self.counts.get(name, [])
        total = np.zeros(max(len(have), len(more)), dtype=np.int64)
        total[: len(have)] += np.array(have, dtype=np.int64)
        total[: len(more)] += np.array(more, dtype=np.int64)
        self.counts[name] = total.tolist()

    def add(self, other: SplitStatistics) -> None:
        """Add the statistics of another part of the same split."""
        for name in ("buckets", "sequences", "tokens", "cost_sum", "cost_square_sum"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("cost_max", "seqs_max", "pieces_max"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for name, counts in other.counts.items():
            self._count(name, counts)

    def totals(self) -> SplitTotals:
        """Return the sums in the form of the manifest."""
        return SplitTotals(
            **{name: getattr(self, name) for name in SplitTotals.__dataclass_fields__}
        )

    def histograms(self) -> dict[str, Histogram]:
        """Return the histograms in the form of the manifest, without the empty bins at each end.

        `length`: number of tokens in a sequence. `fill`: real tokens in a bucket, in percent of the
        capacity. `cost`: Σ length² of a bucket. `sequences`: number of sequences in a bucket.
        """
        found: dict[str, Histogram] = {}
        for name, counts in self.counts.items():
            used = np.flatnonzero(counts)
            first, last = int(used[0]), int(used[-1])
            width = self._width(name)
            found[name] = Histogram(
                first=first * width, width=width, counts=tuple(counts[first : last + 1])
            )
        return found
