"""Assign the positions of a mixture to datasets, and to positions in these datasets.

A run is a group of consecutive positions in which a mixture reaches its exact proportions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.reader.order.global_order import permuted
from schemas.splitmix import mix_all

Weight = float | str | Fraction

MAX_RUN: Final = 10_000
"""Maximum number of positions in a run."""


def whole_shares(weights: Sequence[Weight], names: Sequence[str] = ()) -> tuple[int, ...]:
    """Return weights as the smallest whole numbers in the same proportions.

    Args:
        names: name of each dataset, for errors.
    Raises:
        ValueError: the list of weights is empty, a weight is not a number above 0, or the sum of
            shares is above MAX_RUN.
    """
    exact = []
    for number, weight in enumerate(weights):
        of = f" of {names[number]}" if number < len(names) else ""
        try:
            # use the decimal that the user wrote, not the nearest float
            exact.append(Fraction(str(weight)))
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"weight {weight!r}{of} is not a number") from None
        if exact[-1] <= 0:
            raise ValueError(f"weight {weight!r}{of} is not above 0")
    if not exact:
        raise ValueError("a mixture needs at least one dataset")
    common = math.lcm(*(weight.denominator for weight in exact))
    shares = [int(weight * common) for weight in exact]
    shares = [share // math.gcd(*shares) for share in shares]
    if sum(shares) > MAX_RUN:
        raise ValueError(
            f"weights {list(weights)} need {sum(shares)} buckets to reach their exact proportions, "
            f"and the limit is {MAX_RUN} buckets: round the weights, or write 1/3 as '1/3'"
        )
    return tuple(shares)


def assigned(
    positions: NDArray[np.int64], shares: Sequence[int], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the dataset of each position and the position in that dataset, int64[n] each.

    `positions` must be ascending.
    """
    length = sum(shares)
    first, last = int(positions[0]) // length, int(positions[-1]) // length
    runs = np.arange(first, last + 1, dtype=np.uint64)
    keys = np.repeat(runs ^ np.uint64(mix_all(seed, length)), length)
    slots = permuted(np.tile(np.arange(length), runs.size), length, keys)
    datasets = np.searchsorted(np.cumsum(shares), slots, side="right")
    inside = np.empty_like(datasets)
    for i, share in enumerate(shares):
        mine = datasets == i
        inside[mine] = np.arange(first * share, first * share + np.count_nonzero(mine))
    at = positions - first * length
    return datasets[at], inside[at]


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """Consecutive positions of a mixture at which the weights do not change.

    begin: first position
    shares: proportions of the datasets, as whole numbers
    offsets: number of buckets of each dataset at earlier positions
    """

    begin: int
    shares: tuple[int, ...]
    offsets: tuple[int, ...]


def phases_of(
    weights: Sequence[Weight],
    changes: Sequence[tuple[int, Sequence[Weight]]],
    seed: int,
    names: Sequence[str] = (),
) -> list[Phase]:
    """Return the phases of a mixture, in order.

    Args:
        names: name of each dataset, for errors.
    Raises:
        ValueError: a weight is not a number above 0, a change has too few or too many weights, or
            positions are not ascending and above 0.
    """
    phases = [Phase(begin=0, shares=whole_shares(weights, names), offsets=(0,) * len(weights))]
    for position, changed in changes:
        before = phases[-1]
        if len(changed) != len(weights):
            raise ValueError(
                f"the change at position {position} has {len(changed)} weights for "
                f"{len(weights)} datasets"
            )
        if position <= before.begin:
            raise ValueError(
                f"a change of weights is at position {position}, expected a position after "
                f"{before.begin}"
            )
        offsets = _counts(position - before.begin, before, seed)
        phases.append(Phase(begin=position, shares=whole_shares(changed, names), offsets=offsets))
    return phases


def _counts(length: int, phase: Phase, seed: int) -> tuple[int, ...]:
    """Return the number of buckets of each dataset before the end of a phase.

    length: number of positions in the phase
    """
    runs, rest = divmod(length, sum(phase.shares))
    last = np.arange(length - rest, length)
    datasets = assigned(last, phase.shares, seed ^ phase.begin)[0] if rest else last
    return tuple(
        offset + runs * share + int(np.count_nonzero(datasets == number))
        for number, (offset, share) in enumerate(zip(phase.offsets, phase.shares, strict=True))
    )


def assigned_in_phases(
    positions: NDArray[np.int64], phases: Sequence[Phase], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the dataset of each position and the position in that dataset, int64[n] each.

    `positions` must be ascending.
    """
    which = np.searchsorted([phase.begin for phase in phases], positions, side="right") - 1
    parts = []
    for number in np.unique(which).tolist():
        phase = phases[number]
        mine = positions[which == number] - phase.begin
        datasets, inside = assigned(mine, phase.shares, seed ^ phase.begin)
        parts.append((datasets, inside + np.array(phase.offsets)[datasets]))
    datasets, inside = (np.concatenate(each) for each in zip(*parts, strict=True))
    return datasets, inside
