"""The plots of a page, as data; `templates/plots.html.jinja` draws them.

Every plot has a `label`, which is a description for screen readers, and a `kind`, which is the name
of the macro that draws the plot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from pipeline.report.html.flow import Flow
from pipeline.report.html.svg import Axis, round_steps, short

TOP: Final = 30
"""Space above the bars, in pixels, for the text of the bar under the pointer."""
BELOW: Final = 24
"""Space below the bars, in pixels, for the ticks of the x axis."""
RIDGE: Final = 66
"""Height, in pixels, of the highest bin of a ridge."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One area of a histogram.

    colour: class of the style sheet, `c1` … `c7`
    edges: float[N + 1], edges of the bins in ascending order
    heights: float[N], height of each bin, ≥ 0
    says: str[N], text of each bin, shown while the pointer is on the bin; empty if bins have no
      texts
    """

    name: str
    colour: str
    edges: Sequence[float]
    heights: Sequence[float]
    says: Sequence[str] = ()

    def bins(self, axis: Axis) -> list[tuple[float, float, str]]:
        """Return left edge, width and text of each non-empty bin.

        Left edge and width are in percent of the plot's width.
        """
        at = [axis.at(edge) for edge in self.edges]
        found = zip(at[:-1], at[1:], self.says, self.heights, strict=True)
        return [(a, b - a, words) for a, b, words, height in found if b > a and height]

    def outline(self, axis: Axis, base: float, pixels: Sequence[float]) -> str:
        """Return the SVG path of the bins. A non-empty bin is at least 1 pixel high.

        base: y of the lower end of the bins, in pixels
        pixels: height of each bin, in pixels
        """
        path = [f"M{axis.at(self.edges[0]):.3f} {base}"]
        for right, height in zip(self.edges[1:], pixels, strict=True):
            path.append(f"V{base - (max(height, 1.0) if height else 0.0):.1f}H{axis.at(right):.3f}")
        return "".join((*path, f"V{base}Z"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A vertical line with a text.

    x: position of the line, as a value of the x axis
    row: number of the text line that holds the text, counted from 0 at the top
    strong: True if the line is emphasised
    """

    x: float
    text: str
    row: int = 0
    strong: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    """Areas over a common x axis, with a common y axis from 0.

    height: height of the plot in pixels, without the space above and below the plot
    log_heights: True to draw a count n at height 1 + log10(n), which makes a count of 1 visible
    over: True if the areas overlap; they are then drawn transparent, with outlines
    unit: unit of the numbers on the y axis
    numbers: side of the plot with the numbers of the y axis: `start` is left, `end` is right
    """

    kind: ClassVar[str] = "histogram"
    series: Sequence[Series]
    axis: Axis
    label: str
    marks: Sequence[Mark] = ()
    height: int = 240
    log_heights: bool = False
    over: bool = False
    unit: str = ""
    numbers: Literal["start", "end"] = "start"

    @property
    def base(self) -> int:
        return TOP + self.height

    @property
    def levels(self) -> list[tuple[float, str]]:
        """Position y (in pixels) and text of each horizontal line."""
        if self.log_heights:
            steps = [10.0**d for d in range(math.floor(math.log10(self._top)) + 1)]
        else:
            steps = [y for y in round_steps(0, self._top, 4) if y]
        return [(self.base - self._pixels(y), short(y) + self.unit) for y in steps]

    def outline(self, series: Series) -> str:
        pixels = [self._pixels(height) for height in series.heights]
        return series.outline(self.axis, self.base, pixels)

    @property
    def _top(self) -> float:
        return max((max(s.heights, default=0.0) for s in self.series), default=0.0) or 1.0

    def _pixels(self, value: float) -> float:
        scaled = _logarithm if self.log_heights else float
        return self.height / scaled(self._top) * scaled(value)


def _logarithm(count: float) -> float:
    return 1 + math.log10(count) if count >= 1 else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ridges:
    """Histograms, one below the other, with a common x axis.

    The heights of each histogram are scaled to its largest bin.

    series: each histogram, and the text under the histogram's name
    """

    kind: ClassVar[str] = "ridges"
    series: Sequence[tuple[Series, str]]
    axis: Axis
    label: str

    def outline(self, series: Series, base: float) -> str:
        scale = RIDGE / (max(series.heights, default=0.0) or 1.0)
        return series.outline(self.axis, base, [scale * height for height in series.heights])


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of `Columns`.

    value, reference: share to draw, and share to compare it with, in percent
    says: text to show while the pointer is on the column
    """

    letter: str
    value: float
    reference: float
    says: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """Columns of letters. A line on each column shows the height of the column's reference."""

    kind: ClassVar[str] = "columns"
    columns: Sequence[Column]
    label: str
    colour: str = "c1"
    height: int = 220

    @property
    def scale(self) -> float:
        """Height of 1 % in pixels."""
        return self.height / max((1e-9, *(max(c.value, c.reference) for c in self.columns)))

    @property
    def levels(self) -> list[tuple[float, str]]:
        """Position y (in pixels) and text of each horizontal line."""
        steps = round_steps(0, self.height / self.scale, 5)
        return [(TOP + self.height - y * self.scale, f"{y:g} %") for y in steps if y]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A bar of `Bars`. The left part is coloured, and the right part is hatched.

    words: text at the end of the bar
    share: share of the bar that is coloured, 0 … 1
    below: text under the bar
    """

    name: str
    words: str
    share: float
    colour: str
    below: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """Bars of equal length, one below the other."""

    kind: ClassVar[str] = "bars"
    bars: Sequence[Bar]
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """One bar, divided into parts.

    amounts: name, amount and colour of each part
    """

    kind: ClassVar[str] = "parts"
    amounts: Sequence[tuple[str, int, str]]
    label: str

    @property
    def total(self) -> int:
        return sum(amount for _, amount, _ in self.amounts) or 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    """A dot in a row of `Dots`.

    value: position of the dot, as a value of the axis
    says: text to show while the pointer is on the dot
    """

    value: float
    colour: str
    shape: Literal["round", "square"]
    says: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Dots:
    """Rows of dots on a common axis.

    rows: name and dots of each row
    """

    kind: ClassVar[str] = "dots"
    rows: Sequence[tuple[str, Sequence[Dot]]]
    axis: Axis
    label: str


Plot = Histogram | Ridges | Columns | Bars | Parts | Dots | Flow
