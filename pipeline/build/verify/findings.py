"""Collect records that break a rule. Tasks return them, and `thdpack verify` prints the totals.

The ordinal of a record is its number among all input records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

_SHOWN: Final = 5
"""Maximum number of ordinals in a line."""


@dataclass(frozen=True, slots=True)
class Culprits:
    """Records that break one rule.

    count: number of records
    first: the smallest ordinals, at most _SHOWN
    """

    count: int
    first: tuple[int, ...]

    def __add__(self, other: Culprits) -> Culprits:
        return Culprits(
            self.count + other.count, tuple(sorted([*self.first, *other.first])[:_SHOWN])
        )


@dataclass(slots=True)
class Findings:
    """Records that break rules, grouped by the message about the rule."""

    culprits: dict[str, Culprits] = field(default_factory=dict)

    def add(self, what: str, ordinals: NDArray[np.int64]) -> None:
        """Add records.

        Args:
            what: message about the rule that the records break.
            ordinals: int64[K], ordinals of the records.
        """
        if ordinals.size:
            first = np.sort(ordinals)[:_SHOWN].tolist()
            self._add(what, Culprits(ordinals.size, tuple(first)))

    def merge(self, others: Sequence[Findings]) -> None:
        """Add the records of other findings."""
        for other in others:
            for what, culprits in other.culprits.items():
                self._add(what, culprits)

    def _add(self, what: str, culprits: Culprits) -> None:
        known = self.culprits.get(what, Culprits(0, ()))
        self.culprits[what] = known + culprits

    def lines(self) -> list[str]:
        """Return one line for each rule that is broken."""
        return [
            f"records/: {what}: {culprits.count} records (ordinal "
            f"{', '.join(map(str, culprits.first))}{', …' if culprits.count > _SHOWN else ''})"
            for what, culprits in self.culprits.items()
        ]
