"""Format numbers for people, such as 186.7 M, 66.3 % or 2.4 h.

Only a share of exactly 1 is printed as 100 %, and only a share of exactly 0 as 0 %. A no-break
space joins a number and its unit.
"""

from __future__ import annotations

from typing import Final

_UNITS: Final = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
_HOURS: Final = ((8766.0, "year"), (730.5, "month"), (24.0, "day"))


def about(value: float) -> str:
    """Format a number with four digits and a unit. Numbers below a million keep all digits."""
    for limit, unit in _UNITS:
        if value >= limit:
            return f"{value / limit:.4g}\u00a0{unit}"
    return f"{value:,.0f}"


def percent(share: float) -> str:
    """Format a share in percent with one decimal.

    A share that would look like 0 or 100 % gets more decimals.
    """
    if share in (0.0, 1.0):
        return f"{100 * share:.0f}\u00a0%"
    for digits in (1, 2, 3, 4):
        text = f"{100 * share:.{digits}f}"
        if float(text) not in (0.0, 100.0):
            return f"{text}\u00a0%"
    return "<\u00a00.0001\u00a0%" if share < 0.5 else ">\u00a099.9999\u00a0%"


def change(share: float) -> str:
    """Format a relative change in percent with its sign. A change above 900 % becomes a factor."""
    if share == 0:
        return "no change"
    if share > 9:
        return f"×\u00a0{1 + share:,.0f}"
    return f"{'+' if share > 0 else '−'}{percent(abs(share))}"


def points(difference: float) -> str:
    """Format the difference of two shares in percentage points with its sign."""
    if difference == 0:
        return "no change"
    number = percent(abs(difference)).removesuffix("\u00a0%")
    return f"{'+' if difference > 0 else '−'}{number}\u00a0percentage points"


def size(stored: int) -> str:
    """Format a number of bytes."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if stored >= limit:
            return f"{stored / limit:.1f}\u00a0{unit}"
    return f"{stored}\u00a0B"


def duration(hours: float) -> str:
    """Format a number of hours in a suitable unit, from seconds to years."""
    for limit, unit in _HOURS:
        if hours >= 2 * limit:
            number = f"{hours / limit:,.1f}" if hours < 100 * limit else f"{hours / limit:,.0f}"
            return f"{number}\u00a0{unit}s"
    if hours >= 1:
        return f"{hours:.1f}\u00a0h"
    return f"{60 * hours:.1f}\u00a0min" if hours >= 1 / 60 else f"{3600 * hours:.2g}\u00a0s"
