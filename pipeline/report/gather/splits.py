"""Buckets as a report shows them, counted (a manifest) or simulated (raw FASTA)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pipeline.report.model import Distribution, SplitReport
from schemas.manifest_entries import Histogram, SplitTotals

NO_DISTRIBUTION: Final = Distribution(edges=(), counts=())


def split_report(
    name: str,
    totals: SplitTotals,
    histograms: Mapping[str, Histogram],
    *,
    capacity: int,
    shards: int,
    shard_bytes: int,
) -> SplitReport:
    """What a split holds."""
    counts = {key: _distribution(histograms.get(key)) for key in ("fill", "cost", "sequences")}
    return SplitReport(
        name=name,
        shards=shards,
        bytes=shard_bytes,
        buckets=totals.buckets,
        sequences=totals.sequences,
        tokens=totals.tokens,
        fill=totals.fill(capacity),
        spread=totals.spread,
        peak=totals.peak,
        seqs_max=totals.seqs_max,
        fill_counts=counts["fill"],
        cost_counts=counts["cost"],
        sequences_counts=counts["sequences"],
    )


def together(splits: Iterable[SplitTotals]) -> SplitTotals:
    """The totals of all splits as if they were one."""
    parts = list(splits)
    sums = {
        name: sum(getattr(part, name) for part in parts)
        for name in ("buckets", "sequences", "tokens", "cost_sum", "cost_square_sum")
    }
    most = {
        name: max((getattr(part, name) for part in parts), default=0)
        for name in ("cost_max", "seqs_max", "pieces_max")
    }
    return SplitTotals(**sums, **most)


def cost_counts(histograms: Iterable[Histogram | None]) -> Distribution:
    """The `cost` histograms of several splits added up; a dataset's have bins of one width."""
    found = [histogram for histogram in histograms if histogram is not None and histogram.counts]
    if not found:
        return NO_DISTRIBUTION
    width = found[0].width
    assert all(histogram.width == width and histogram.first % width == 0 for histogram in found)
    first = min(histogram.first for histogram in found)
    last = max(histogram.first + width * len(histogram.counts) for histogram in found)
    counts = [0] * ((last - first) // width)
    for histogram in found:
        for i, count in enumerate(histogram.counts, (histogram.first - first) // width):
            counts[i] += count
    return _distribution(Histogram(first=first, width=width, counts=tuple(counts)))


def _distribution(histogram: Histogram | None) -> Distribution:
    if histogram is None or not histogram.counts:
        return NO_DISTRIBUTION
    edges = tuple(histogram.first + i * histogram.width for i in range(len(histogram.counts) + 1))
    return Distribution(edges=edges, counts=histogram.counts)
