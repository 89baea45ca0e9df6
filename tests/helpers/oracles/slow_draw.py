"""The draw of one member of each cluster (`--sample-clusters`), with Python's integers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction

from tests.helpers.oracles.slow_windows import mixed


def fixed_point(weight: str) -> int:
    """Return a weight of a table in units of 2^-30."""
    return math.floor(Fraction(float(weight)) * (1 << 30) + Fraction(1, 2))


def slow_draw(members: Iterable[tuple[int, int, int]], *, seed: int, variant: int) -> set[int]:
    """Return the ordinals (numbers among all input records) of the members that a variant draws,
    one of each cluster.

    Args:
        members: key of the cluster, ordinal and weight of each member.
        seed: value of --seed.
    """
    clusters = defaultdict(list)
    for key, ordinal, weight in members:
        clusters[key].append((ordinal, weight))
    of_variant = mixed(mixed(seed) ^ variant) if variant else seed
    base = mixed(mixed(of_variant) ^ int.from_bytes(b"draw"))
    drawn = set()
    for key, found in clusters.items():
        place = mixed(key ^ base) * sum(weight for _, weight in found) >> 64
        for ordinal, weight in sorted(found):
            if 0 <= place < weight:
                drawn.add(ordinal)
            place -= weight
    return drawn
