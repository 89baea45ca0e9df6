"""Distributions of a report: make them, add them up, and iterate over their bins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from schemas.manifest_entries import Histogram


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """Histogram whose bins may differ in width.

    edges: float[B + 1], edges of the bins in ascending order
    counts: int[B]; counts[i] is the number of values v with edges[i] ≤ v < edges[i + 1]
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


def distribution_of(histogram: Histogram | None) -> Distribution:
    """Convert a histogram of the manifest. An empty histogram has no bins."""
    if histogram is None or not histogram.counts:
        return Distribution(edges=(), counts=())
    edges = tuple(histogram.first + i * histogram.width for i in range(len(histogram.counts) + 1))
    return Distribution(edges=edges, counts=histogram.counts)


def added(parts: Iterable[Distribution]) -> Distribution:
    """Return the sum of distributions.

    All bins must have the same width, and begin at multiples of this width.
    """
    counts: dict[float, int] = {}
    width = 1.0
    for part in parts:
        for low, high, count in bins(part):
            counts[low] = counts.get(low, 0) + count
            width = high - low
    if not counts:
        return Distribution(edges=(), counts=())
    first, last = min(counts), max(counts)
    edges = [first + i * width for i in range(round((last - first) / width) + 2)]
    return Distribution(
        edges=tuple(edges), counts=tuple(counts.get(edge, 0) for edge in edges[:-1])
    )


def bins(values: Distribution) -> Iterator[tuple[float, float, int]]:
    """Yield lower edge, upper edge and count of each bin."""
    return zip(values.edges[:-1], values.edges[1:], values.counts, strict=True)
