"""Several datasets read as one endless stream, in exact proportions, resumable like one.

    from pipeline.reader.mixture import Mixture

    with Mixture([("data/uniref50", 0.7), ("data/metagenomes", 0.3)], buckets_per_step=64) as reader:
        ...

Weights are made into whole shares: 0.7 and 0.3 into 7 and 3. Each run of 10 positions then holds exactly 7 and 3 buckets, in
an order that a key of (seed, run) decides, so that no rank always draws from the same dataset. Each dataset keeps its own
order and its own epochs.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from pipeline.reader.bucket_shape import BucketShape
from pipeline.reader.cursor import GlobalCursor, Ranks
from pipeline.reader.global_order import permuted
from pipeline.reader.shard_cache import DEFAULT_BYTES
from pipeline.reader.split_reader import Split
from schemas.bucket import Bucket
from schemas.splitmix import mix_all

MAX_RUN: Final = 10_000
"""Positions after which proportions have to come out exactly."""

_TABLE: Final = 1 << 16
"""About how many positions are assigned to datasets at once, of all ranks."""


class Mixture(GlobalCursor):
    """This rank's buckets of several datasets. `shares` are their whole-numbered proportions."""

    def __init__(
        self,
        datasets: Sequence[tuple[str | Path, float | str | Fraction]],
        split: str = "train",
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        context_parallel: int = 1,
        buckets_per_step: int = 0,
        cache_dir: str | Path | None = None,
        cache_bytes: int = DEFAULT_BYTES,
        prefetch: int = 4,
    ) -> None:
        """Open the datasets. The arguments are ShardReader's, but:

        Args:
            datasets: (url, weight) of each; weights of any scale, above 0. 0.1 means a tenth, not the float next to it;
                a third is Fraction(1, 3) or "1/3".
            prefetch: shards of each dataset.
        Raises:
            DatasetError: one of them is missing, cannot be trusted, or cannot be reached.
            InputError: no file system is installed for a URL's protocol.
            ValueError: weights that come out only after more than MAX_RUN buckets; datasets of different capacity or
                vocabulary; ranks that do not fit together; a cache below the working sets.
        """
        self.shares = whole_shares([weight for _, weight in datasets])
        ranks = Ranks(
            rank=rank,
            world_size=world_size,
            context_parallel=context_parallel,
            buckets_per_step=buckets_per_step,
        )
        splits: list[Split] = []
        try:
            for url, _ in datasets:
                splits.append(
                    Split(
                        str(url),
                        split,
                        seed=seed,
                        cache_dir=cache_dir,
                        cache_bytes=cache_bytes,
                        prefetch=prefetch,
                    )
                )
            shape = _common_shape(splits)
            for member in splits:
                member.shape = shape
                member.next_use = partial(_next_use, splits, self.shares)
            needed = sum(member.working_set(ranks.step) for member in splits)
            if needed > cache_bytes:
                raise ValueError(
                    f"cache_bytes is {cache_bytes}, reading these {len(splits)} datasets needs {needed}"
                )
        except BaseException:
            _stop(splits)
            raise
        identity = json.dumps(
            [
                [member.manifest.digest, share]
                for member, share in zip(splits, self.shares, strict=True)
            ]
        )
        super().__init__(
            ranks,
            digest=xxhash.xxh3_128_hexdigest(identity.encode()),
            split=split,
            seed=seed,
            take=partial(_take, splits, self.shares, seed),
            stop=partial(_stop, splits),
            block=max(1, _TABLE // max(ranks.groups, 64)),
        )


def whole_shares(weights: Sequence[float | str | Fraction]) -> tuple[int, ...]:
    """Weights as the smallest whole numbers in the same proportions.

    Raises:
        ValueError: none, one that is not above 0 or not a number, or their sum is above MAX_RUN.
    """
    exact = []
    for weight in weights:
        try:
            exact.append(
                Fraction(str(weight))
            )  # the decimal that was written, not the float next to it
        except (ValueError, ZeroDivisionError) as error:
            raise ValueError(f"weight {weight!r} is not a number") from error
        if exact[-1] <= 0:
            raise ValueError(f"weight {weight!r}, expected one above 0")
    if not exact:
        raise ValueError("a mixture of no datasets")
    common = math.lcm(*(weight.denominator for weight in exact))
    shares = [int(weight * common) for weight in exact]
    shares = [share // math.gcd(*shares) for share in shares]
    if sum(shares) > MAX_RUN:
        raise ValueError(
            f"weights {list(weights)} come out exactly only after {sum(shares)} buckets, the limit is {MAX_RUN}: round them, or write 1/3 as '1/3'"
        )
    return tuple(shares)


def assigned(
    positions: NDArray[np.int64], shares: Sequence[int], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which dataset each position draws from, and the position in it; int64[n] each. `positions` rise."""
    length = sum(shares)
    first, last = int(positions[0]) // length, int(positions[-1]) // length
    runs = np.arange(first, last + 1, dtype=np.uint64)
    keys = np.repeat(runs ^ np.uint64(mix_all(seed, length)), length)
    slots = permuted(np.tile(np.arange(length), runs.size), length, keys)
    datasets = np.searchsorted(np.cumsum(shares), slots, side="right")
    inside = np.empty_like(datasets)
    for i, share in enumerate(shares):
        mine = datasets == i
        inside[mine] = np.arange(first * share, first * share + np.count_nonzero(mine))
    at = positions - first * length
    return datasets[at], inside[at]


def _take(
    splits: Sequence[Split], shares: Sequence[int], seed: int, positions: NDArray[np.int64]
) -> Iterator[Bucket]:
    datasets, inside = assigned(positions, shares, seed)
    streams = [
        splits[i].take(inside[datasets == i], positions[datasets == i]) for i in range(len(splits))
    ]
    for i in datasets.tolist():
        yield next(streams[i])


def _next_use(splits: Sequence[Split], shares: Sequence[int]) -> Iterator[str]:
    """Hashes of all datasets' shards in the order of their next use: a dataset with a small share moves on slowly."""
    ahead = [
        ((distance / share, digest) for distance, digest in member.uses())
        for member, share in zip(splits, shares, strict=True)
    ]
    return (digest for _, digest in heapq.merge(*ahead))


def _stop(splits: Sequence[Split]) -> None:
    for split in splits:
        split.stop()


def _common_shape(splits: Sequence[Split]) -> BucketShape:
    """Room for the buckets of all datasets."""
    for other in splits[1:]:
        for what in ("capacity", "vocabulary"):
            ours, theirs = getattr(splits[0].manifest, what), getattr(other.manifest, what)
            if ours != theirs:
                raise ValueError(
                    f"{other.url} has {what} {theirs!r}, {splits[0].url} has {ours!r}; datasets of a mixture have the same"
                )
    return BucketShape(
        capacity=splits[0].shape.capacity,
        slots=max(split.shape.slots for split in splits),
        max_seqlen=max(split.shape.max_seqlen for split in splits),
        vocabulary=splits[0].shape.vocabulary,
    )
