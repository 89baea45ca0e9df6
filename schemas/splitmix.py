"""SplitMix64's first output for a 64-bit state: a fast function that mixes the bits of a number.

Shuffles compute their sort keys with this function. The function is not cryptographically secure.

Source: Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_MASK: Final = (1 << 64) - 1
GAMMA: Final = 0x9E3779B97F4A7C15
"""SplitMix64 adds this number to its state for each output."""
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the first output of SplitMix64 for each value as state, uint64. This is a
    bijection."""
    z = values + np.uint64(GAMMA)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
    return z ^ (z >> np.uint64(31))


def mix_all(*parts: int) -> int:
    """Return a 64-bit key for several integers. The key depends on the order of the integers."""
    key = 0
    for part in parts:
        z = ((key ^ part) + GAMMA) & _MASK
        z = ((z ^ (z >> 30)) * _FIRST) & _MASK
        z = ((z ^ (z >> 27)) * _SECOND) & _MASK
        key = z ^ (z >> 31)
    return key
