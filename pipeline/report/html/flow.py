"""A flow plot: streams from nodes on the left to nodes on the right.

A stream shows an amount, and its width is proportional to the amount.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """A stream between two nodes.

    source: number of the node on the left
    target: number of the node on the right
    amount: number of records
    """

    source: int
    target: int
    amount: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A node, at which streams begin or end.

    words: text below the name
    colour: class of the style sheet, `c1` … `c7`
    """

    name: str
    words: str
    colour: str = "c1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """A flow plot. A stream is at least 1.5 pixels wide.

    sources, targets: nodes on the left and nodes on the right
    height: total height of the streams of one side, in pixels
    """

    kind: ClassVar[str] = "flow"
    sources: Sequence[Node]
    targets: Sequence[Node]
    streams: Sequence[Stream]
    label: str
    height: int = 200

    def layout(self) -> Layout:
        """Return the positions of nodes and streams."""
        scale = self.height / (sum(stream.amount for stream in self.streams) or 1)
        left = self._stacked(self.sources, lambda stream: stream.source, scale)
        right = self._stacked(self.targets, lambda stream: stream.target, scale)
        bands = []
        for s in sorted(self.streams, key=lambda stream: (stream.target, stream.source)):
            if s.amount:
                a, b = left[s.source].take(s.amount * scale)
                c, d = right[s.target].take(s.amount * scale)
                path = f"M1 {a:.1f}C50 {a:.1f} 50 {c:.1f} 99 {c:.1f}"
                path += f"V{d:.1f}C50 {d:.1f} 50 {b:.1f} 1 {b:.1f}Z"
                bands.append((self.targets[s.target].colour, path))
        bottom = max((end.slot_end for end in (*left, *right)), default=40.0)
        return Layout(left=left, right=right, bands=bands, height=int(bottom) + 4)

    def _stacked(
        self, nodes: Sequence[Node], end_of: Callable[[Stream], int], scale: float
    ) -> list[PlacedNode]:
        """Place the nodes of one side from top to bottom. Each node has two lines of text."""
        placed = []
        y = 4.0
        for i, node in enumerate(nodes):
            height = scale * sum(stream.amount for stream in self.streams if end_of(stream) == i)
            slot_end = y + max(height, 36.0)
            placed.append(PlacedNode(node, top=y, height=max(height, 1.5), slot_end=slot_end))
            y = slot_end + 10
        return placed


@dataclass(slots=True)
class PlacedNode:
    """A node and its position, in pixels.

    top, height: upper end and height of the node's bar
    slot_end: lower end of the space for the bar and the node's text
    taken: total height of the streams that are already placed at the node
    """

    node: Node
    top: float
    height: float
    slot_end: float
    taken: float = 0.0

    @property
    def middle(self) -> float:
        """Upper end, in pixels, of the node's two lines of text."""
        return self.top + max(0.0, (self.height - 30) / 2)

    def take(self, height: float) -> tuple[float, float]:
        """Place the next stream of the given height. Return its upper and its lower end."""
        begin = self.top + self.taken
        self.taken += height
        return begin, begin + max(height, 1.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Positions in a flow plot.

    left, right: placed nodes of the left side and of the right side
    bands: colour and SVG path of each stream
    height: height of the plot in pixels
    """

    left: list[PlacedNode]
    right: list[PlacedNode]
    bands: list[tuple[str, str]]
    height: int
