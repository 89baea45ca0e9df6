"""Recompute the numbers of splits and of simulated packings with simple loops.

The simulations need the random order of sequences that the report uses. Therefore they use numpy's
shuffle with the same seed (see pipeline/report/gather/waste.py).
"""

from __future__ import annotations

from bisect import bisect_right
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.data.corpus import read_buckets, read_manifest
from tests.helpers.reports.slow_report import Record, pieces

POOL = 50


def splits(dataset: Path) -> list[dict[str, Any]]:
    """Return the numbers of each split, computed from all its buckets. Instead of a histogram,
    `*_counts` is the list of all values.
    """
    manifest = read_manifest(dataset)
    buckets = read_buckets(dataset)
    found = []
    for name, entries in manifest.shards.items():
        rows = [bucket for bucket in buckets if bucket["split"] == name]
        costs = [_cost(bucket) for bucket in rows]
        tokens = [bucket["num_tokens"] for bucket in rows]
        spread, peak = _spread(costs)
        found.append(
            {
                "name": name,
                "shards": len(entries),
                "bytes": sum((dataset / entry.name).stat().st_size for entry in entries),
                "buckets": len(rows),
                "sequences": sum(bucket["num_seqs"] for bucket in rows),
                "tokens": sum(tokens),
                "fill": sum(tokens) / (len(rows) * manifest.capacity) if rows else 0.0,
                "spread": spread,
                "peak": peak,
                "seqs_max": max((bucket["num_seqs"] for bucket in rows), default=0),
                "fill_counts": [100 * count // manifest.capacity for count in tokens],
                "cost_counts": costs,
                "sequences_counts": [bucket["num_seqs"] for bucket in rows],
            }
        )
    return found


def _cost(bucket: dict[str, Any]) -> int:
    edges = bucket["cu_seqlens"][: bucket["num_seqs"] + 1]
    return sum((b - a) ** 2 for a, b in zip(edges[:-1], edges[1:], strict=True))


def _spread(costs: list[int]) -> tuple[float, float]:
    """Return the coefficient of variation, and the ratio of the largest value to the mean."""
    if not costs:
        return 0.0, 0.0
    mean = sum(costs) / len(costs)
    return sqrt(sum((cost - mean) ** 2 for cost in costs) / len(costs)) / mean, max(costs) / mean


def waste(records: list[Record], options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the numbers of the simulated packings `bshd`, `sorted` and `next-fit`, by name.
    Instead of a histogram, `cost_counts` is the list of all values.
    """
    stream = np.array(
        sorted(
            len(piece) + 2
            for record in records
            if record.status == "kept"
            for piece in pieces(record, options)
        ),
        dtype=np.int32,
    )
    np.random.default_rng(options["seed"]).shuffle(stream)
    lengths: list[int] = stream.tolist()
    sorted_batches, next_fit = _sorted_batches(lengths, options), _next_fit(lengths, options)
    longest = _padded(options["max_seq_len"], options)
    ways = {
        "bshd": (len(lengths), len(lengths) * longest, None),
        "sorted": (
            len(sorted_batches),
            sum(rows * width for rows, width in sorted_batches),
            [rows * width**2 for rows, width in sorted_batches],
        ),
        "next-fit": (
            len(next_fit),
            len(next_fit) * options["capacity"],
            [sum(span**2 for span in bucket) for bucket in next_fit],
        ),
    }
    found = {}
    for name, (batches, places, costs) in ways.items():
        spread, peak = _spread(costs) if costs is not None else (0.0, 1.0)
        share = 1 - sum(lengths) / places
        found[name] = {
            "batches": batches,
            "places": places,
            "waste": share,
            "spread": spread,
            "peak": peak,
            "cost_counts": costs,
        }
    return found


def _padded(length: int, options: dict[str, Any]) -> int:
    return ceil(length / options["length_multiple"]) * int(options["length_multiple"])


def _sorted_batches(lengths: list[int], options: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the number of rows of each batch, and their common width in tokens."""
    pool = max(1, POOL * options["capacity"] * len(lengths) // sum(lengths))
    batches = []
    for at in range(0, len(lengths), pool):
        waiting = sorted(
            (_padded(length, options) for length in lengths[at : at + pool]), reverse=True
        )
        while waiting:
            rows = min(options["capacity"] // waiting[0], len(waiting))
            batches.append((rows, waiting[0]))
            waiting = waiting[rows:]
    return batches


def _next_fit(lengths: list[int], options: dict[str, Any]) -> list[list[int]]:
    """Return the padded lengths in each bucket."""
    buckets: list[list[int]] = []
    for length in lengths:
        span = _padded(length, options)
        if (
            not buckets
            or sum(buckets[-1]) + span > options["capacity"]
            or len(buckets[-1]) == options["max_seqs"]
        ):
            buckets.append([])
        buckets[-1].append(span)
    return buckets


def binned(values: list[int], edges: list[float]) -> list[int]:
    """Return the number of values in each bin between edges. Every value must lie in a bin."""
    counts = [0] * max(0, len(edges) - 1)
    for value in values:
        place = bisect_right(edges, value) - 1
        assert 0 <= place < len(counts), f"{value} lies outside of {edges[0]} … {edges[-1]}"
        counts[place] += 1
    return counts
