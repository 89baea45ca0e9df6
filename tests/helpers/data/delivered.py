"""Buckets that readers return, in a form that tests can compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.reader import ShardReader
from schemas.shard import Bucket

WORLDS = (1, 2, 3, 4, 6, 8)
STEP = 24
Seen = tuple[int, bytes, bytes, int, int, int]


def seen(bucket: Bucket) -> Seen:
    """Return all values of a bucket as a tuple, for comparison."""
    return (
        bucket.position,
        bucket.input_ids.tobytes(),
        bucket.cu_seqlens.tobytes(),
        bucket.num_seqs,
        bucket.num_tokens,
        bucket.max_seqlen,
    )


def steps(
    dataset: Path, world: int, count: int, *, state: dict[str, Any] | None = None, prefetch: int = 2
) -> tuple[list[Seen], dict[str, Any]]:
    """Read `count` steps on `world` ranks. Return the buckets in the global order, and the state of
    the readers after the last step.
    """
    readers = [
        ShardReader(dataset, rank=rank, world_size=world, buckets_per_step=STEP, prefetch=prefetch)
        for rank in range(world)
    ]
    delivered: list[Seen] = []
    for reader in readers:
        if state is not None:
            reader.load_state_dict(state)
    first = readers[0].position
    for step in range(count):
        shares = [iter([seen(next(reader)) for _ in range(STEP // world)]) for reader in readers]
        delivered += [
            next(shares[position % world])
            for position in range(first + step * STEP, first + (step + 1) * STEP)
        ]
    states = [reader.state_dict() for reader in readers]
    for reader in readers:
        reader.close()
    assert all(other == states[0] for other in states)
    return delivered, states[0]
