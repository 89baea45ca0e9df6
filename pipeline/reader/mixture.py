"""Read several datasets as one endless stream in exact proportions, with one state to resume from.

    from pipeline.reader.mixture import Mixture

    with Mixture([("data/uniref50", 0.7), ("data/metagenomes", 0.3)], seed=1) as reader:
        ...

Weights become whole-number shares: 0.7 and 0.3 become 7 and 3. The stream has one bucket at each
position, and is divided into runs of 10 positions. Each run holds exactly 7 buckets of the first
dataset and 3 of the second. The seed and the run's number determine the order of the datasets
within the run. If every run had the same order, each of ten ranks would always read from one
dataset. Each dataset keeps its own order and its own epochs, even if the weights change at a
position (`changes`).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, NoReturn

import numpy as np
import xxhash
from numpy.typing import NDArray

from pipeline.reader.bucket_shape import BucketShape
from pipeline.reader.cursor import GlobalCursor
from pipeline.reader.guards.data_loader_guard import refuse_data_loader
from pipeline.reader.order.mixture_order import Phase, Weight, assigned_in_phases, phases_of
from pipeline.reader.reader_options import ReaderOptions, checked_url, naming_our_arguments
from pipeline.reader.split_reader import SplitReader
from schemas.shard import Bucket
from schemas.text.generation import Generation, generation_of_each
from schemas.text.redact import without_credentials

_TABLE: Final = 1 << 16
"""Approximate number of positions, over all ranks, that are assigned to datasets in one call."""


@naming_our_arguments
@dataclass(eq=False, repr=False)
class Mixture(ReaderOptions, GlobalCursor):
    """This rank's buckets of several datasets. `shares` are the datasets' whole-number proportions,
    and `manifests` are their manifests.

    Args:
        datasets: a pair (url, weight) for each dataset, or a dict from url to weight. Weights are
            above 0 and need not sum to 1. The weight 0.1 means exactly a tenth, not the nearest
            float. For a third, give Fraction(1, 3) or "1/3".
        split: split to read: train, valid or test.
        changes: a pair (position, weights) for each change of weights. Positions are ascending. The
            weights, one for each dataset, apply from the position on.
        generations: generation of each dataset, in their order: numbers, "latest", or digests of
            manifests, which `manifests` has. () means the latest generation of every dataset.
        seed: seed of the order, the same on every rank.
        rank: rank of this process, as in torch.distributed.
        world_size: number of ranks.
        context_parallel: number of consecutive ranks that get the same buckets.
        buckets_per_step: number of buckets in a step of all ranks; 0 means one for each rank, or
            for each context-parallel group.
        cache_dir: local folder for cached shards. With None, shards of remote datasets are cached
            in $XDG_CACHE_HOME/thdpack, and shards of local datasets are not cached.
        cache_bytes: maximum total size of the shards in cache_dir, such as "20G"; by default, 32
            GiB.
        prefetch: number of shards to fetch before they are needed; 0 starts no threads.
    Raises:
        DatasetError: one of the datasets or generations is missing, damaged, or cannot be reached.
        InputError: no file system is installed for a URL's protocol.
        ValueError: one of these:
            - the shares sum to more than MAX_RUN
            - the datasets differ in capacity or vocabulary
            - a generation is wrong or missing
            - the options about ranks contradict each other
            - the cache cannot hold the shards in use and the prefetched shards
    """

    datasets: Sequence[tuple[str | Path, Weight]] | Mapping[str, Weight]
    split: str = "train"
    changes: Sequence[tuple[int, Sequence[Weight]]] = ()
    generations: Sequence[Generation] = field(default=(), kw_only=True)
    others: ClassVar[str] = (
        "a mixture with another dataset, weight or change of weights, or of a single dataset"
    )

    def __post_init__(self) -> None:
        datasets = _pairs(self.datasets)
        names = [without_credentials(str(url)) for url, _ in datasets]
        weights = [weight for _, weight in datasets]
        phases = phases_of(weights, self.changes, self.seed, names)
        self.shares = phases[0].shares
        generations = generation_of_each(self.generations, len(datasets))
        ranks, limit = self.topology(), self.cache_limit
        splits: list[SplitReader] = []
        try:
            for (url, _), generation in zip(datasets, generations, strict=True):
                splits.append(SplitReader(checked_url(url), self.split, self, generation))
            shape = _common_shape(splits)
            for member in splits:
                member.join_mixture(shape, partial(_next_use, splits, self.shares))
            needed = sum(member.working_set(ranks.step) for member in splits)
            if needed > limit:
                raise self.cache_too_small(f"these {len(splits)} datasets need", needed)
        except BaseException:
            _stop(splits)
            raise
        self.manifests = tuple(member.manifest for member in splits)
        self._begin(
            ranks,
            source="the mixture",
            digest=_digest(splits, phases),
            split=self.split,
            seed=self.seed,
            take=partial(_take, splits, phases, self.seed),
            stop=partial(_stop, splits),
            block=max(1, _TABLE // max(ranks.groups, 64)),
        )

    def __bool__(self) -> bool:
        return True

    def epoch(self) -> NoReturn:
        """Refuse to read one epoch, because each dataset has its own epochs.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "a Mixture has no epoch, because each of its datasets has its own epochs: use "
            "itertools.islice(mixture, BUCKETS), or ShardReader.epoch for each dataset"
        )

    def __len__(self) -> NoReturn:
        """Refuse to give a length, because each dataset has its own epochs.

        Raises:
            DataLoaderError: torch's DataLoader uses this mixture as its dataset.
            TypeError: otherwise.
        """
        refuse_data_loader()
        raise TypeError("a Mixture has no length, because each of its datasets has its own epochs")

    def __repr__(self) -> str:
        urls = (str(url) for url, _ in _pairs(self.datasets))
        return self.described(list(zip(urls, self.shares, strict=True)), {})


def _pairs(datasets: object) -> list[tuple[str | Path, Weight]]:
    """Return datasets as (url, weight) pairs.

    Raises:
        ValueError: `datasets` is neither a list of pairs nor a dict.
    """
    pairs = list(datasets.items()) if isinstance(datasets, Mapping) else datasets
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        raise ValueError(
            f"datasets is {datasets!r}, expected (url, weight) pairs or a dict: "
            '[("a", 0.7), ("b", 0.3)] or {"a": 0.7, "b": 0.3}'
        )
    return [(url, weight) for url, weight in pairs]


def _digest(splits: Sequence[SplitReader], phases: Sequence[Phase]) -> str:
    """Return the xxh3_128 of the datasets, the shares, and the changes of shares. Together with
    split and seed, these determine the order."""
    members = zip(splits, phases[0].shares, strict=True)
    identity: list[list[str | int]] = [[member.manifest.digest, share] for member, share in members]
    identity += [[phase.begin, *phase.shares] for phase in phases[1:]]
    return xxhash.xxh3_128_hexdigest(json.dumps(identity).encode())


def _take(
    splits: Sequence[SplitReader],
    phases: Sequence[Phase],
    seed: int,
    positions: NDArray[np.int64],
) -> Iterator[Bucket]:
    datasets, inside = assigned_in_phases(positions, phases, seed)
    streams = [
        splits[i].take(inside[datasets == i], positions[datasets == i]) for i in range(len(splits))
    ]
    for i in datasets.tolist():
        yield next(streams[i])


def _next_use(splits: Sequence[SplitReader], shares: Sequence[int]) -> Iterator[str]:
    """Yield hashes of all datasets' shards in the order of their next use.

    The smaller a dataset's share, the later its shards are used. Later changes of the weights are
    ignored, because the cache needs only an estimate.
    """
    ahead = [
        ((distance / share, digest) for distance, digest in member.uses())
        for member, share in zip(splits, shares, strict=True)
    ]
    return (digest for _, digest in heapq.merge(*ahead))


def _stop(splits: Sequence[SplitReader]) -> None:
    for split in splits:
        split.stop()


def _common_shape(splits: Sequence[SplitReader]) -> BucketShape:
    for other in splits[1:]:
        for name in ("capacity", "vocabulary"):
            ours, theirs = getattr(splits[0].manifest, name), getattr(other.manifest, name)
            if ours != theirs:
                raise ValueError(
                    f"{other.url} has {name} {theirs!r}, {splits[0].url} has {ours!r}; "
                    f"all datasets of a mixture must have the same {name}"
                )
    return BucketShape(
        capacity=splits[0].shape.capacity,
        slots=max(split.shape.slots for split in splits),
        max_seqlen=max(split.shape.max_seqlen for split in splits),
        vocabulary=splits[0].shape.vocabulary,
    )
