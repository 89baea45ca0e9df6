"""Draw one member of each cluster for a variant (a pass over the kept records with its own seed).

A member is a kept record in a cluster. The computation uses only integers, so all machines draw the
same members:

1. Sort the members of a cluster by ordinal (the record's number among all input records). Give each
   member an interval of integers whose size is the member's weight. The intervals lie end to end,
   from 0 to the cluster's total weight.
2. Compute an integer below the total weight from the seed of the variant and the key of the
   cluster.
3. Draw the member whose interval holds this integer.

The draw does not depend on the number of variants or partitions. The probability that a member is
drawn differs from its share of the total weight by less than 2⁻⁶³.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.splitmix import mix, mix_all

_DRAW: Final = int.from_bytes(b"draw", "big")
"""Constant that makes the draw independent of the split. Both depend on the cluster's key."""
MOST_WEIGHT: Final = 1 << 62
"""Maximum total weight of a cluster."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of M members of clusters.

    cluster: uint64[M], key of each member's cluster
    begin:   uint64[M], first integer of each member's interval
    weight:  uint64[M], number of integers in each interval
    total:   uint64[M], total weight of each member's cluster
    """

    cluster: NDArray[np.uint64]
    begin: NDArray[np.uint64]
    weight: NDArray[np.uint64]
    total: NDArray[np.uint64]

    def drawn(self, seed: int) -> NDArray[np.bool_]:
        """Return a mask of the members that a variant draws, bool[M].

        Args:
            seed: seed of the variant; see `variant_seed`.
        """
        keys = mix(self.cluster ^ np.uint64(mix_all(seed, _DRAW)))
        mask: NDArray[np.bool_] = below(keys, self.total) - self.begin < self.weight
        return mask  # for a number below `begin`, the difference wraps around to a large number


def below(keys: NDArray[np.uint64], limits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return ⌊key · limit / 2⁶⁴⌋ for each random key: an integer below each limit, uint64[N]."""
    half, low = np.uint64(32), np.uint64((1 << 32) - 1)
    key_high, key_low = keys >> half, keys & low
    limit_high, limit_low = limits >> half, limits & low
    middle = key_high * limit_low + (key_low * limit_low >> half)
    carry = (middle & low) + key_low * limit_high
    found: NDArray[np.uint64] = key_high * limit_high + (middle >> half) + (carry >> half)
    return found


def intervals_of(
    cluster: NDArray[np.uint64], weight: NDArray[np.uint64]
) -> tuple[Intervals, float]:
    """Return the intervals of members, and an estimate of the largest total weight of a cluster.

    If this total weight is above MOST_WEIGHT, the intervals are wrong.

    Args:
        cluster, weight: uint64[M], cluster key and weight of each member. The members are sorted by
            cluster, then by ordinal.
    """
    if not cluster.size:
        return Intervals(cluster, weight, weight, weight), 0.0
    new = np.concatenate(([True], cluster[1:] != cluster[:-1]))
    first = np.flatnonzero(new)
    number = np.cumsum(new) - 1
    total = np.add.reduceat(weight, first)
    before = np.cumsum(weight) - weight  # if the sum overflows, differences stay correct
    largest = float(np.add.reduceat(weight.astype(np.float64), first).max())
    begin = before - before[first][number]
    return Intervals(cluster, begin, weight, total[number]), largest
