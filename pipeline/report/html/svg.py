"""Coordinates of a plot: x is in percent of the width, y and text sizes are in pixels.

With these units, a plot fits columns of 340 to 1,200 pixels without a script, and its text keeps
its size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """Horizontal axis from `low` at the left edge to `high` at the right edge.

    log: True if the scale is logarithmic
    names: text of each tick, by the tick's value; None means ticks at round values
    """

    low: float
    high: float
    log: bool = False
    names: Mapping[float, str] | None = None

    def __post_init__(self) -> None:
        assert (0 if self.log else -math.inf) < self.low < self.high, (
            f"an axis from {self.low} to {self.high}"
        )

    def at(self, value: float) -> float:
        """Return the position of `value` in percent of the width, limited to 0 … 100."""
        low, high, value = (
            math.log(max(v, self.low)) if self.log else v for v in (self.low, self.high, value)
        )
        return min(100.0, max(0.0, 100 * (value - low) / (high - low)))

    def ticks(self) -> dict[float, str]:
        """Return the text of each tick, by the tick's value."""
        if self.names is not None:
            return dict(self.names)
        return {value: short(value) for value in round_steps(self.low, self.high)}


def round_steps(low: float, high: float, most: int = 6) -> list[float]:
    """Return round values from `low` to `high`, at most about `most` of them.

    The distance between values is 1, 2 or 5 times a power of ten.
    """
    raw = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * digit for digit in (1, 2, 5, 10) if unit * digit >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]


def short(value: float) -> str:
    """Format a number for a tick, in few characters, such as 1.5k, 20M or 0.05."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def pc(value: float) -> str:
    """Format an SVG length in percent of the width."""
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"


def px(value: float) -> str:
    """Format an SVG length in pixels."""
    return f"{value:.1f}".removesuffix(".0")
