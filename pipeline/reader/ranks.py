"""The topology of a training run's ranks, which determines the buckets that each rank reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranks:
    """Topology of the ranks, which determines the buckets of this rank in every step.

    rank, world_size: rank and number of ranks, as in torch.distributed.
    context_parallel: number of ranks in a context-parallel group. The consecutive ranks of a group
        share a bucket, and each rank computes a slice of the bucket.
    buckets_per_step: number of buckets of all ranks in one step; 0 means one bucket per group.
    """

    rank: int
    world_size: int
    context_parallel: int
    buckets_per_step: int

    def __post_init__(self) -> None:
        if self.world_size < 1 or not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"rank is {self.rank} and world_size is {self.world_size}, "
                "expected 0 ≤ rank < world_size"
            )
        if self.context_parallel < 1 or self.world_size % self.context_parallel:
            raise ValueError(
                f"world_size is {self.world_size}, "
                f"expected a multiple of context_parallel, {self.context_parallel}"
            )
        if self.buckets_per_step < 0 or self.buckets_per_step % self.groups:
            those = "ranks" if self.context_parallel == 1 else "context-parallel groups"
            raise ValueError(
                f"buckets_per_step is {self.buckets_per_step}, "
                f"expected a multiple of {self.groups}, the number of {those}"
            )

    @property
    def groups(self) -> int:
        """Number of context-parallel groups. Each group gets different buckets."""
        return self.world_size // self.context_parallel

    @property
    def group(self) -> int:
        return self.rank // self.context_parallel

    @property
    def step(self) -> int:
        """Number of buckets in one step over all ranks."""
        return self.buckets_per_step or self.groups

    @property
    def share(self) -> int:
        """Number of buckets in one step for each group."""
        return self.step // self.groups
