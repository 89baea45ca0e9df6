"""Compare the packers on the sequence lengths of a FASTA file: fill, spread and speed.

    python -m benchmarks.offline.packing --fasta swissprot.fasta --plot docs/images/packing.png

Lengths are capped at 1,024 tokens and shuffled. A packer gets all lengths as one stream. The
figures include the partly filled buckets at the end of the stream. Fill is the share of a bucket's
tokens that are not padding. Spread is the coefficient of variation of Σ length² (the attention
cost) over buckets.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from Bio.SeqIO.FastaIO import SimpleFastaParser

from packers import PACKERS
from packers.quality import measure


@dataclass(frozen=True, kw_only=True)
class Options:
    fasta: Path
    """Uncompressed FASTA file whose lengths are packed."""
    capacities: tuple[int, ...] = (4_096, 16_384, 65_536)
    """Tokens per bucket."""
    runs: int = 5
    """Number of runs of each packer. The benchmark prints the median speed."""
    seed: int = 0
    """Seed of the shuffle."""
    plot: Path | None = None
    """File for a histogram of the buckets' Σ length², for the middle capacity."""


def token_lengths(fasta: Path, seed: int) -> np.ndarray:
    """Return int64[N], min(residues + 2, 1,024) of each record, in shuffled order."""
    with fasta.open() as file:
        lengths = np.array(
            [min(len(residues) + 2, 1024) for _, residues in SimpleFastaParser(file)],
            dtype=np.int64,
        )
    np.random.default_rng(seed).shuffle(lengths)
    return lengths


def main(options: Options) -> None:
    lengths = token_lengths(options.fasta, options.seed)
    print(f"{lengths.size:,} sequences, {lengths.sum():,} tokens\n")
    print(
        "| capacity | packer | fill | spread of Σ length² "
        "| max / mean of Σ length² | most sequences in a bucket | M sequences/s, median |"
    )
    print("|---|---|---|---|---|---|---|")
    costs: dict[int, dict[str, np.ndarray]] = {}
    for capacity in options.capacities:
        max_seqs = max(127, capacity // 128 - 1)
        for name, packer in PACKERS.items():
            bound = max_seqs if name != "bfd" else capacity  # bfd: in effect no limit
            seconds = []
            for _ in range(options.runs):
                started = time.perf_counter()
                buckets = packer(lengths, capacity=capacity, max_seqs=bound)
                seconds.append(time.perf_counter() - started)
            q = measure(lengths, buckets, capacity=capacity)
            speed = lengths.size / statistics.median(seconds) / 1e6
            print(
                f"| {capacity:,} | {name} | {100 * q.fill:.3f} % | {q.spread:.4f} | {q.peak:.3f} "
                f"| {q.max_seqs} | {speed:.1f} |"
            )
            costs.setdefault(capacity, {})[name] = np.bincount(
                buckets, weights=lengths.astype(float) ** 2
            )
    if options.plot is not None:
        capacity = options.capacities[len(options.capacities) // 2]
        title = f"Buckets of {capacity:,} tokens, lengths of {options.fasta.name}"
        draw(costs[capacity], title, options.plot)


def draw(costs: dict[str, np.ndarray], title: str, path: Path) -> None:
    """For each packer, draw a histogram of the buckets' Σ length² divided by their mean."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    bins = np.linspace(0.4, 2.2, 181)
    for name, cost in costs.items():
        axes.hist(
            cost / cost.mean(),
            bins=list(bins),
            density=True,
            histtype="step",
            linewidth=1.6,
            label=name,
        )
    axes.set(
        xlabel="attention cost of a bucket (Σ length²) / mean",
        ylabel="density (log)",
        yscale="log",
        title=title,
    )
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(tyro.cli(Options))
