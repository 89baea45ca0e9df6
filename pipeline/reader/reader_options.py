"""The options that `ShardReader` and `Mixture` have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.reader.cache.cache_folder import DEFAULT_BYTES
from pipeline.reader.cursor import Ranks


@dataclass(kw_only=True, eq=False, repr=False)
class ReaderOptions:
    """Keyword arguments of both readers, which inherit them as dataclass fields."""

    seed: int = 0
    """Seed of the order; the same on every rank."""
    rank: int = 0
    """Rank as torch.distributed counts it. Rank r of W takes the positions that are r modulo W."""
    world_size: int = 1
    """Number of ranks."""
    context_parallel: int = 1
    """Consecutive ranks that get the same buckets. W above is world_size / context_parallel."""
    buckets_per_step: int = 0
    """Buckets that all ranks take in one optimizer step, a multiple of W; 0 for W."""
    cache_dir: str | Path | None = None
    """Folder on a local disk for shards of remote datasets, shared by all processes of the node.
    None for $XDG_CACHE_HOME/thdpack. A local dataset is cached only if a folder is given; give one
    if the dataset is on a network file system."""
    cache_bytes: int = DEFAULT_BYTES
    """Limit of all shards in cache_dir. Other files there do not count."""
    prefetch: int = 4
    """Shards of each dataset to fetch, verify and map ahead of those in use; 0 for none, without
    threads."""

    def topology(self) -> Ranks:
        """Return this rank's part of every step.

        Raises:
            ValueError: the numbers do not fit together.
        """
        return Ranks(
            rank=self.rank,
            world_size=self.world_size,
            context_parallel=self.context_parallel,
            buckets_per_step=self.buckets_per_step,
        )
