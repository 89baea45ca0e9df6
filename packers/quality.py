"""The figures that judge a packing: fill, the spread of Σ length², and sequences in a bucket."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    """Quality of a packing.

    buckets: buckets counted
    fill: tokens / (buckets × capacity)
    spread: coefficient of variation of a bucket's attention cost, Σ length²
    peak: largest Σ length² / its mean; all ranks wait for the one with the largest
    max_seqs: most sequences in a bucket
    """

    buckets: int
    fill: float
    spread: float
    peak: float
    max_seqs: int


def measure(
    lengths: NDArray[np.int64],
    buckets: NDArray[np.int32],
    *,
    capacity: int,
    first: int = 0,
    last: int | None = None,
) -> Quality:
    """Judge the buckets `first` … `last` - 1 of an assignment.

    Args:
        lengths: int64[N], tokens per sequence.
        buckets: int32[N], bucket of each sequence, -1 where it was left out.
        capacity: tokens per bucket.
        first: first bucket to count.
        last: one past the last bucket to count; the number of buckets unless given.
    Raises:
        ValueError: no bucket is in the range.
    """
    placed = buckets >= 0
    weights = lengths[placed].astype(np.float64)
    tokens = np.bincount(buckets[placed], weights=weights)[first:last]
    cost = np.bincount(buckets[placed], weights=weights**2)[first:last]
    count = np.bincount(buckets[placed])[first:last]
    if tokens.size == 0:
        raise ValueError(f"no bucket in {first}..{last}")
    return Quality(
        buckets=int(tokens.size),
        fill=float(tokens.sum() / (tokens.size * capacity)),
        spread=float(cost.std() / cost.mean()),
        peak=float(cost.max() / cost.mean()),
        max_seqs=int(count.max()),
    )
