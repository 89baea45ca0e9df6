"""Plots as inline SVG: histograms, ridges, columns, bars, dots. What a mark says appears in the upper right corner while the pointer is on it.

Costs about 5 µs a bin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.report.html.markup import Markup, tag
from pipeline.report.html.svg import (
    BELOW,
    TOP,
    Axis,
    base_line,
    canvas,
    pc,
    px,
    round_steps,
    rule,
    said,
    short,
    stretched,
    ticks,
    vertical,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """What a histogram draws.

    colour: class of the style sheet, `c1` … `c5`
    edges: float[N + 1], rising
    heights: float[N], ≥ 0
    says: str[N], what each bin says while the pointer is on it; empty if nothing
    """

    name: str
    colour: str
    edges: Sequence[float]
    heights: Sequence[float]
    says: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A vertical line at `x`, and what is written on it; `row` counts down from the top, so that neighbours do not overlap."""

    x: float
    text: str
    row: int = 0
    strong: bool = False


def histogram(
    series: Sequence[Series],
    *,
    axis: Axis,
    label: str,
    marks: Sequence[Mark] = (),
    names: dict[float, str] | None = None,
    height: int = 240,
    log_heights: bool = False,
    over: bool = False,
    unit: str = "",
    numbers: str = "start",
) -> Markup:
    """Areas over one axis, on a common scale from 0; with `log_heights`, 1 is as high as from 1 to 10.

    over: areas lie over one another, so they are clear and have outlines
    label: what the plot shows, in words, for those who do not see it
    names: what ticks of the x axis are called, if not by their numbers
    unit: of the y axis
    numbers: where the y axis has its numbers, `start` or `end`: where the marks are low
    """
    grown = _logarithm if log_heights else float
    top = max((max(s.heights, default=0.0) for s in series), default=0.0) or 1.0
    steps = (
        [10.0**d for d in range(math.floor(math.log10(top)) + 1)]
        if log_heights
        else [y for y in round_steps(0, top, 4) if y]
    )
    base = TOP + height
    scale = height / grown(top)
    grid = [rule(base - grown(y) * scale, short(y) + unit, numbers) for y in steps]
    kind = "area over" if over else "area"
    areas = [
        tag(
            "path",
            class_=f"{kind} {s.colour}",
            d=_steps(s, axis, base, [scale * grown(y) for y in s.heights]),
        )
        for s in series
    ]
    return canvas(
        base + BELOW,
        label,
        [lines for lines, _ in grid],
        stretched(base, *areas),
        base_line(base),
        [text for _, text in grid],
        ticks(axis, base, names),
        [_mark(mark, axis, base) for mark in marks],
        [_hits(s, axis, TOP, base) for s in series if s.says],
    )


def ridges(
    series: Sequence[tuple[Series, str]],
    *,
    axis: Axis,
    label: str,
    names: dict[float, str] | None = None,
    height: int = 66,
) -> Markup:
    """Histograms one below the other over one axis, each as high as its own largest bin, with a few words under its name."""
    row = height + 56
    base = row * len(series)
    drawn: list[Markup] = []
    for i, (s, words) in enumerate(series):
        foot = (i + 1) * row - 6
        drawn += [
            tag("text", s.name, class_="strong", x="0", y=str(i * row + 16)),
            tag("text", words, class_="muted halo", x="0", y=str(i * row + 34)),
            stretched(
                base,
                tag(
                    "path",
                    class_=f"area {s.colour}",
                    d=_steps(s, axis, foot, _scaled(s.heights, height)),
                ),
            ),
            base_line(foot),
            _hits(s, axis, i * row + 24, foot),
        ]
    return canvas(
        base + BELOW,
        label,
        [vertical(axis.at(x), 44, base - 6) for x in axis.ticks()],
        drawn,
        ticks(axis, base - 6, names),
    )


def columns(
    labels: Sequence[str],
    values: Sequence[float],
    reference: Sequence[float],
    says: Sequence[str],
    *,
    label: str,
    colour: str = "c1",
    height: int = 220,
) -> Markup:
    """A column for each label, and a bar across it where the reference is. Values are percent."""
    top = max((*values, *reference, 1e-9))
    base = TOP + height
    scale = height / top
    band = 100 / max(1, len(labels))
    drawn: list[Markup] = []
    for i, (letter, value, wanted, words) in enumerate(
        zip(labels, values, reference, says, strict=True)
    ):
        left = i * band
        drawn.append(
            tag(
                "g",
                tag(
                    "rect",
                    class_="catch",
                    x=pc(left),
                    y=str(TOP),
                    width=pc(band),
                    height=str(height + BELOW),
                ),
                tag(
                    "rect",
                    class_=f"bar {colour}",
                    x=pc(left + 0.14 * band),
                    y=px(base - value * scale),
                    width=pc(0.72 * band),
                    height=px(value * scale),
                ),
                tag(
                    "line",
                    class_="reference",
                    x1=pc(left + 0.06 * band),
                    x2=pc(left + 0.94 * band),
                    y1=px(base - wanted * scale),
                    y2=px(base - wanted * scale),
                ),
                tag(
                    "text",
                    letter,
                    class_="letter",
                    x=pc(left + band / 2),
                    y=str(base + 17),
                    text_anchor="middle",
                ),
                said(words),
                class_="hit",
            )
        )
    grid = [rule(base - y * scale, f"{y:g} %", "end") for y in round_steps(0, top, 5) if y]
    return canvas(
        base + BELOW,
        label,
        [lines for lines, _ in grid],
        base_line(base),
        drawn,
        [text for _, text in grid],
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One row of `bars`: `share` of it (0 … 1) in `colour`, the rest hatched; `words` at its end, `below` under it."""

    name: str
    words: str
    share: float
    colour: str
    below: str


def bars(rows: Sequence[Bar], *, label: str) -> Markup:
    """Rows of equal length, each with a share that counts and a rest that does not."""
    drawn: list[Markup] = []
    for i, bar in enumerate(rows):
        y = 82 * i
        drawn += [
            tag("text", bar.name, class_="strong", x="0", y=str(y + 16)),
            tag(
                "text", bar.words, class_="strong halo", x="100%", y=str(y + 16), text_anchor="end"
            ),
            tag("rect", class_="rest", x="0", y=str(y + 24), width="100%", height="20", rx="3"),
            tag(
                "rect",
                class_=f"bar {bar.colour}",
                x="0",
                y=str(y + 24),
                width=pc(100 * bar.share),
                height="20",
                rx="3",
            ),
            tag("text", bar.below, class_="tick", x="0", y=str(y + 60)),
        ]
    return canvas(82 * len(rows) - 14, label, drawn)


def parts(amounts: Sequence[tuple[str, int, str]], *, label: str) -> Markup:
    """One row, cut into parts: name, amount, colour of each."""
    total = sum(amount for _, amount, _ in amounts) or 1
    drawn: list[Markup] = []
    at = 0.0
    for text, amount, colour in amounts:
        width = 100 * amount / total
        drawn.append(
            tag(
                "g",
                tag("rect", class_=f"bar {colour}", x=pc(at), y="26", width=pc(width), height="40"),
                said(f"{text}: {amount:,}"),
                class_="hit",
            )
        )
        at += width
    return canvas(70, label, drawn)


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    """A value of a row, drawn as `shape` (`round` or `square`) in `colour`."""

    value: float
    colour: str
    shape: str
    says: str


def dots(
    rows: Sequence[tuple[str, Sequence[Dot]]], *, axis: Axis, label: str, names: dict[float, str]
) -> Markup:
    """Values of each row on a common axis."""
    row, base = 34, 34 * len(rows) + TOP
    drawn: list[Markup] = []
    for i, (name, values) in enumerate(rows):
        y = TOP + row * i + row / 2
        drawn.append(tag("line", class_="grid", x1="0", x2="100%", y1=px(y), y2=px(y)))
        drawn += [_dot(dot, axis, y) for dot in values]
        drawn.append(tag("text", name, class_="strong halo", x="0", y=px(y - 5)))
    upright = [vertical(axis.at(x), TOP, base) for x in names]
    return canvas(base + BELOW, label, upright, drawn, ticks(axis, base, names))


def _dot(dot: Dot, axis: Axis, y: float) -> Markup:
    at = axis.at(dot.value)
    if dot.shape == "round":
        drawn = tag("circle", class_=f"dot {dot.colour}", cx=pc(at), cy=px(y), r="6")
    else:
        drawn = tag(
            "rect",
            class_=f"dot {dot.colour}",
            x=pc(at),
            y=px(y - 5.5),
            width="11",
            height="11",
            transform="translate(-5.5 0)",
        )
    return tag("g", drawn, said(dot.says), class_="hit")


def _logarithm(count: float) -> float:
    return 1 + math.log10(count) if count >= 1 else 0.0


def _scaled(heights: Sequence[float], pixels: float) -> list[float]:
    """Heights so that the largest is `pixels`."""
    scale = pixels / (max(heights, default=0.0) or 1.0)
    return [scale * height for height in heights]


def _steps(series: Series, axis: Axis, base: float, heights: Sequence[float]) -> str:
    """The outline of a histogram whose bins are `heights` pixels high; what is not empty shows at least as a line."""
    path = [f"M{axis.at(series.edges[0]):.3f} {base}"]
    for right, height in zip(series.edges[1:], heights, strict=True):
        path.append(f"V{base - (max(height, 1.0) if height else 0.0):.1f}H{axis.at(right):.3f}")
    return "".join((*path, f"V{base}Z"))


def _hits(series: Series, axis: Axis, top: float, base: float) -> Markup:
    """A stripe for each bin that catches the pointer."""
    edges = [axis.at(edge) for edge in series.edges]
    return tag(
        "g",
        [
            tag(
                "g",
                tag(
                    "rect",
                    class_="catch",
                    x=pc(a),
                    y=px(top),
                    width=pc(b - a),
                    height=px(base - top),
                ),
                tag("text", words, class_="said", x="100%", y=px(top - 8), text_anchor="end"),
                class_="hit",
            )
            for a, b, words, value in zip(
                edges[:-1], edges[1:], series.says, series.heights, strict=True
            )
            if b > a and value
        ],
    )


def _mark(mark: Mark, axis: Axis, base: float) -> Markup:
    at = axis.at(mark.x)
    end = at > 72
    y = TOP + 12 + 17 * mark.row
    return tag(
        "g",
        tag(
            "line",
            class_="mark strong" if mark.strong else "mark",
            x1=pc(at),
            x2=pc(at),
            y1=px(y - 11),
            y2=px(base),
        ),
        tag(
            "text",
            mark.text,
            class_="strong halo" if mark.strong else "note halo",
            x=pc(at),
            y=px(y),
            dx="-5" if end else "5",
            text_anchor="end" if end else "start",
        ),
    )
