"""Make distributions of a report from a manifest's histograms, add them up, and iterate over
bins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipeline.report.model import Distribution
from schemas.manifest_entries import Histogram


def distribution_of(histogram: Histogram | None) -> Distribution:
    """Return a histogram as a distribution, with no bins if nothing was counted."""
    if histogram is None or not histogram.counts:
        return Distribution(edges=(), counts=())
    edges = tuple(histogram.first + i * histogram.width for i in range(len(histogram.counts) + 1))
    return Distribution(edges=edges, counts=histogram.counts)


def added(parts: Iterable[Distribution]) -> Distribution:
    """Add up distributions whose bins have one width and begin at its multiples."""
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
    """Yield where each bin begins and ends, and its count."""
    return zip(values.edges[:-1], values.edges[1:], values.counts, strict=True)
