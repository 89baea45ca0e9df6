"""What plots are drawn with: SVG that needs no script, x in percent of the width, y and letters in pixels.

So a plot fills a column of 340 pixels and one of 1,200, and its letters keep their size. Colours are classes `c1` … `c5`, which the page's
style sheet sets for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pipeline.report.html.markup import Markup, tag

TOP: Final = 30
"""Pixels above the marks: what the pointer is on is told there."""
BELOW: Final = 24
"""Pixels below the marks: the ticks of the x axis."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """Values low … high from the left edge to the right; equal ratios take equal widths if `log`."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        assert (0 if self.log else -math.inf) < self.low < self.high, (
            f"an axis from {self.low} to {self.high}"
        )

    def at(self, value: float) -> float:
        """Percent of the width, within 0 … 100."""
        low, high, value = (
            math.log(max(v, self.low)) if self.log else v for v in (self.low, self.high, value)
        )
        return min(100.0, max(0.0, 100 * (value - low) / (high - low)))

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the axis, at most `most` steps apart. Of a logarithmic axis the caller names them."""
        return round_steps(self.low, self.high, most)


def round_steps(low: float, high: float, most: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten within low … high, at most `most` steps apart."""
    raw = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * digit for digit in (1, 2, 5, 10) if unit * digit >= raw * (1 - 1e-9))
    return [
        n * step for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def short(value: float) -> str:
    """A number in the room of a tick: 1.5k, 20M, 0.05."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def canvas(height: int, label: str, *children: Iterable[Markup] | Markup) -> Markup:
    """A plot as wide as its column; `label` is for those who do not see it."""
    return tag("svg", *children, width="100%", height=str(height), role="img", aria_label=label)


def stretched(height: int, *children: Markup) -> Markup:
    """Children drawn with x from 0 to 100, stretched over the whole width."""
    return tag(
        "svg",
        *children,
        width="100%",
        height=str(height),
        viewBox=f"0 0 100 {height}",
        preserveAspectRatio="none",
    )


def said(words: str) -> Markup:
    """What a mark says while the pointer is on it; stands beside the mark in a group of class `hit`."""
    return tag("text", words, class_="said", x="100%", y="16", text_anchor="end")


def rule(y: float, text: str, end: str) -> tuple[Markup, Markup]:
    """A grid line, and its number above one of its ends, to be drawn after the marks."""
    line = tag("line", class_="grid", x1="0", x2="100%", y1=px(y), y2=px(y))
    return line, tag(
        "text",
        text,
        class_="tick halo",
        x="0" if end == "start" else "100%",
        y=px(y - 4),
        text_anchor=end,
    )


def vertical(x: float, top: float, base: float) -> Markup:
    """An upright grid line."""
    return tag("line", class_="grid", x1=pc(x), x2=pc(x), y1=px(top), y2=px(base))


def base_line(y: float) -> Markup:
    """What columns stand on."""
    return tag("line", class_="base", x1="0", x2="100%", y1=px(y), y2=px(y))


def ticks(axis: Axis, base: float, names: dict[float, str] | None) -> list[Markup]:
    """Numbers of the x axis, or what `names` calls its values."""
    named = names if names is not None else {value: short(value) for value in axis.ticks()}
    drawn = []
    for value, text in named.items():
        at = axis.at(value)
        anchor = "start" if at < 4 else "end" if at > 96 else "middle"
        drawn.append(
            tag("text", text, class_="tick", x=pc(at), y=px(base + 17), text_anchor=anchor)
        )
    return drawn


def pc(value: float) -> str:
    """Percent of the width, as SVG writes it."""
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"


def px(value: float) -> str:
    """Pixels, as SVG writes them."""
    return f"{value:.1f}".removesuffix(".0")
