"""Streams from nodes on the left to nodes on the right, as wide as what they carry. Costs some 10 µs a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.report.html.markup import Markup, tag
from pipeline.report.html.svg import canvas, pc, px, stretched


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """`amount` that goes from the left node number `source` to the right node number `target`."""

    source: int
    target: int
    amount: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """An end of streams: its name, and what is written beneath it."""

    name: str
    words: str
    colour: str = "c1"


def flow(
    sources: Sequence[Node],
    targets: Sequence[Node],
    streams: Sequence[Stream],
    *,
    label: str,
    height: int = 200,
) -> Markup:
    """Streams from the nodes on the left to those on the right; widths are amounts, but never thinner than can be seen."""
    scale = height / (sum(stream.amount for stream in streams) or 1)
    left = _stacked(
        [sum(s.amount for s in streams if s.source == i) for i in range(len(sources))], scale
    )
    right = _stacked(
        [sum(s.amount for s in streams if s.target == i) for i in range(len(targets))], scale
    )
    bands = [
        tag(
            "path",
            class_=f"stream {targets[s.target].colour}",
            d=_band(left[s.source].take(s.amount * scale), right[s.target].take(s.amount * scale)),
        )
        for s in sorted(streams, key=lambda s: (s.target, s.source))
        if s.amount
    ]
    bottom = max((end.slot_end for end in (*left, *right)), default=40.0)
    return canvas(
        int(bottom) + 4,
        label,
        stretched(int(bottom) + 4, *bands),
        [_node_drawn(node, end, left_side=True) for node, end in zip(sources, left, strict=True)],
        [_node_drawn(node, end, left_side=False) for node, end in zip(targets, right, strict=True)],
    )


@dataclass(slots=True)
class _End:
    """Where a node lies, and how much of it is taken by streams drawn so far; pixels."""

    top: float
    height: float
    slot_end: float
    taken: float = 0.0

    def take(self, height: float) -> tuple[float, float]:
        begin = self.top + self.taken
        self.taken += height
        return begin, begin + max(height, 1.5)


def _stacked(amounts: Sequence[int], scale: float) -> list[_End]:
    """Nodes from the top, each with room for two lines of text."""
    ends: list[_End] = []
    y = 4.0
    for amount in amounts:
        slot = max(scale * amount, 36.0)
        ends.append(_End(top=y, height=max(scale * amount, 1.5), slot_end=y + slot))
        y += slot + 10
    return ends


def _band(begin: tuple[float, float], end: tuple[float, float]) -> str:
    (a, b), (c, d) = begin, end
    return f"M1 {a:.1f}C50 {a:.1f} 50 {c:.1f} 99 {c:.1f}V{d:.1f}C50 {d:.1f} 50 {b:.1f} 1 {b:.1f}Z"


def _node_drawn(node: Node, end: _End, *, left_side: bool) -> Markup:
    x, anchor, at = ("0", "start", 2.2) if left_side else ("99%", "end", 97.8)
    middle = end.top + max(0.0, (end.height - 30) / 2)
    return tag(
        "g",
        tag(
            "rect",
            class_=f"bar {node.colour if not left_side else 'ink'}",
            x=x,
            y=px(end.top),
            width="1%",
            height=px(end.height),
        ),
        tag("text", node.name, class_="strong", x=pc(at), y=px(middle + 13), text_anchor=anchor),
        tag("text", node.words, class_="value", x=pc(at), y=px(middle + 29), text_anchor=anchor),
    )
