"""Measure a packing: fill, spread of Σ length² (attention cost), and sequences per bucket."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    """Quality of a packing.

    buckets: number of measured buckets
    fill: number of tokens / (buckets × capacity)
    spread: coefficient of variation of Σ length² over buckets
    peak: largest Σ length² / mean Σ length²; in training, all ranks wait for the rank
        with the most expensive bucket
    max_seqs: largest number of sequences in any of the measured buckets
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
    """Measure the buckets `first` … `last` - 1 of a packing.

    Args:
        lengths: int64[N], number of tokens of each sequence.
        buckets: int32[N], bucket of each sequence; -1 for a left-out sequence.
        capacity: number of tokens per bucket.
        first: first bucket to measure.
        last: 1 + number of the last bucket to measure; None for all buckets from `first` on.
    Raises:
        ValueError: no bucket is in the range.
    """
    placed = buckets >= 0
    weights = lengths[placed].astype(np.float64)
    tokens = np.bincount(buckets[placed], weights=weights)[first:last]
    cost = np.bincount(buckets[placed], weights=weights**2)[first:last]
    count = np.bincount(buckets[placed])[first:last]
    if tokens.size == 0:
        wanted = f"from {first} on" if last is None else f"in {first}..{last - 1}"
        raise ValueError(f"the packing has no bucket {wanted}")
    return Quality(
        buckets=int(tokens.size),
        fill=float(tokens.sum() / (tokens.size * capacity)),
        spread=float(cost.std() / cost.mean()),
        peak=float(cost.max() / cost.mean()),
        max_seqs=int(count.max()),
    )
