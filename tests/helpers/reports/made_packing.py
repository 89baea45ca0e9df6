"""The splits, packings and training budget of a synthetic report (made_report.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.report.distributions import Distribution
from pipeline.report.model import SplitReport, Waste
from pipeline.report.model_estimates import Budget, BudgetRow

CAPACITY, LONGEST = 16_384, 1_024
NOTHING = Distribution(edges=(), counts=())


def counted(values: np.ndarray, edges: Sequence[float]) -> Distribution:
    return Distribution(
        edges=tuple(map(float, edges)), counts=tuple(np.histogram(values, edges)[0].tolist())
    )


def made_split(
    rng: np.random.Generator, name: str, tokens: np.ndarray, packed: bool
) -> SplitReport:
    buckets = -(-int(tokens.sum()) // CAPACITY)
    fills = np.where(rng.random(buckets) < 0.97, 100, 99)
    cost = rng.normal(8.1e6, 4e4, buckets)
    seqs = rng.poisson(3, buckets) + 43
    return SplitReport(
        name=name,
        shards=1,
        bytes=buckets * CAPACITY,
        buckets=buckets,
        sequences=len(tokens),
        tokens=int(tokens.sum()),
        fill=int(tokens.sum()) / (buckets * CAPACITY),
        spread=0.0049,
        peak=1.013,
        seqs_max=int(seqs.max()),
        fill_counts=counted(fills, range(90, 102)) if packed else NOTHING,
        cost_counts=counted(cost, np.arange(7.8e6, 8.5e6, 16_384)) if packed else NOTHING,
        sequences_counts=counted(seqs, range(40, 64)) if packed else NOTHING,
    )


def made_waste(rng: np.random.Generator, tokens: np.ndarray, packed: bool) -> tuple[Waste, ...]:
    total = int(tokens.sum())
    edges = np.linspace(0, CAPACITY * LONGEST, 400)
    count = total // CAPACITY
    drawn = (
        ("bshd", "padded to 1,024 (BSHD)", 1 - total / (len(tokens) * LONGEST), 0.0, 1.0, None),
        ("sorted", "sorted in pools of 50 batches", 0.021, 0.61, 2.05, rng.gamma(2.7, 3e6, count)),
        ("next-fit", "next-fit", 0.0153, 0.11, 1.43, rng.normal(8e6, 8.8e5, count)),
        ("packed", "this packing", 0.0002, 0.0049, 1.013, rng.normal(8.1e6, 4e4, count)),
    )
    return tuple(
        Waste(
            name=name,
            label=label,
            batches=len(tokens) if name == "bshd" else count,
            places=int(total / (1 - waste)),
            waste=waste,
            spread=spread,
            peak=peak,
            cost_counts=None
            if costs is None or (name == "packed" and not packed)
            else counted(costs, edges),
            predicted=name == "packed" and not packed,
        )
        for name, label, waste, spread, peak, costs in drawn
    )


def made_budget(tokens: int) -> Budget:
    speeds = (
        ("8M", "bf16", 3_025_000),
        ("35M", "bf16", 1_013_000),
        ("150M", "bf16", 331_500),
        ("650M", "bf16", 112_700),
        ("650M", "fp8-delayed", 145_600),
    )
    speeds += (("3B", "bf16", 31_400), ("3B", "fp8-delayed", 45_700), ("15B", "fp8-delayed", 7_119))
    run = 500_000 * 2_097_152
    rows = tuple(
        BudgetRow(
            preset=f"esm2-{preset.lower()}",
            precision=precision,
            tokens_per_second=speed,
            run_tokens=run,
            epochs=run / tokens,
            epoch_gpu_hours=tokens / speed / 3600,
            run_gpu_hours=run / speed / 3600,
            source="docs/benchmarks.md, the training step",
        )
        for preset, precision, speed in speeds
    )
    return Budget(tokens=tokens, gpu="NVIDIA H200", rows=rows)
