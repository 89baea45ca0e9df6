"""The options that `ShardReader` and `Mixture` have in common."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pipeline.reader.cache.cache_folder import DEFAULT_BYTES
from pipeline.reader.ranks import Ranks
from schemas.text.byte_size import parse_bytes
from schemas.text.option_checks import LOCAL_CACHE, check_local, whole_number

_OTHERS: Final = {
    "remote": "give the dataset's folder or URL as the first argument",
    **dict.fromkeys(("local", "cache_folder"), "use cache_dir"),
    **dict.fromkeys(("cache_limit", "cache_size", "max_cache_size"), "use cache_bytes"),
    **dict.fromkeys(("predownload", "prefetch_factor"), "use prefetch"),
    **dict.fromkeys(("shuffle_seed", "random_seed"), "use seed"),
    **dict.fromkeys(("num_replicas", "num_ranks"), "use world_size"),
    **dict.fromkeys(
        ("shuffle", "shuffle_algo", "shuffle_block_size"),
        "the order is always shuffled, and seed chooses the order",
    ),
    "batch_size": "use buckets_per_step, the number of buckets in a step on all ranks",
    "replication": "use context_parallel",
    **dict.fromkeys(
        ("streams", "proportion", "repeat", "choose"), "use Mixture([(DATASET, share), …])"
    ),
    "epoch_size": "an epoch reads the split once; bucket.epoch is the epoch of a bucket",
    "num_canonical_nodes": "the order never depends on the number of ranks",
    "validate_hash": "the reader always compares the hash of each shard",
    **dict.fromkeys(
        ("download_retry", "download_timeout"), "the reader retries, with increasing pauses"
    ),
    "keep_zip": "shards in the cache are identical to those of the dataset",
    **dict.fromkeys(("num_workers", "num_threads"), "a reader needs no workers; see prefetch"),
}
"""Advice for an error message, by keyword argument of other libraries' readers."""

_WHOLE: Final = (
    *("seed", "rank", "world_size", "context_parallel", "buckets_per_step", "prefetch"),
)
"""Arguments that are whole numbers."""

T = TypeVar("T")


def naming_our_arguments(reader: type[T]) -> type[T]:
    """Make a reader refuse misspelt arguments and those of other libraries, with a TypeError that
    names ours. Make it also refuse values that must be whole numbers, but are not."""
    begin: Callable[..., None] = reader.__init__
    _, *ours = inspect.signature(begin).parameters  # without self

    @functools.wraps(begin)
    def checked(self: T, *values: Any, **options: Any) -> None:
        for name in options:
            if name not in ours:
                raise TypeError(f"{reader.__name__} has no argument {name}: {_advice(name, ours)}")
            if name in _WHOLE:
                whole_number(name, options[name])
        begin(self, *values, **options)

    setattr(reader, "__init__", checked)  # noqa: B010 (mypy refuses the assignment)
    return reader


def _advice(name: str, ours: Sequence[str]) -> str:
    """Return what to write instead of an argument that a reader does not have."""
    close = difflib.get_close_matches(name.lower(), [*ours, *_OTHERS], n=1)
    nearest = name if name in _OTHERS else close[0] if close else ""
    if nearest in _OTHERS:
        return _OTHERS[nearest]
    return f"did you mean {nearest}?" if nearest else f"its arguments are {', '.join(ours)}"


def checked_url(url: object) -> str:
    """Return the folder or URL of a dataset as text.

    Raises:
        TypeError: it is neither text nor a path.
    """
    if not isinstance(url, str | Path):
        raise TypeError(f"url is {url!r}, expected the folder or URL of a dataset")
    return str(url)


@dataclass(kw_only=True, eq=False, repr=False)
class ReaderOptions:
    """Keyword arguments of `ShardReader` and `Mixture`, which inherit this class.

    The docstrings of those classes describe each argument briefly, for `help` and editors.
    """

    seed: int = 0
    """Seed of the order. It must be the same on every rank."""
    rank: int = 0
    """Rank of this process, as in torch.distributed."""
    world_size: int = 1
    """Number of ranks."""
    context_parallel: int = 1
    """Number of consecutive ranks that form a group and get the same buckets. By default, each rank
    is a group. The number of groups is G = world_size / context_parallel. Group g reads the
    positions g, g + G, g + 2 G …, counted from 0."""
    buckets_per_step: int = 0
    """Number of buckets in one optimizer step, over all ranks: a multiple of the number of groups.
    0 means one bucket for each group."""
    cache_dir: str | Path | None = None
    """Folder on a local disk for shards of remote datasets, shared by all processes of the node.
    With None, remote datasets use $XDG_CACHE_HOME/thdpack. A dataset at a local path is cached only
    if cache_dir is given. Give cache_dir if the local path is on a network file system."""
    cache_bytes: int | str = DEFAULT_BYTES
    """Maximum total size of the shards in cache_dir, as a number of bytes or a text such as "20G".
    Other files in cache_dir do not count."""
    prefetch: int = 4
    """Number of shards of each dataset to fetch, verify and map before they are needed. With 0, the
    reader starts no threads."""

    @property
    def cache_limit(self) -> int:
        """`cache_bytes` as a number.

        Raises:
            ValueError: `cache_bytes` is not a size.
        """
        return parse_bytes(self.cache_bytes, name="cache_bytes")

    @property
    def cache_folder(self) -> Path | None:
        """`cache_dir` as a path; None if it is not given or empty.

        Raises:
            ValueError: `cache_dir` is a URL.
        """
        if not self.cache_dir:
            return None
        check_local("--cache-dir (in Python, cache_dir)", str(self.cache_dir), LOCAL_CACHE)
        return Path(self.cache_dir)

    def cache_too_small(self, source: str, needed: int) -> ValueError:
        """Return the error for a cache without room for the shards in use and those prefetched.

        Args:
            source: subject and verb of the message, such as "s3://bucket/dataset needs".
            needed: number of bytes that the cache must hold.
        """
        return ValueError(
            f"--cache-bytes (in Python, cache_bytes) is {self.cache_limit:,} bytes, but {source} "
            f"{needed:,} bytes for the shards in use and {self.prefetch} prefetched shards: give "
            f"at least {-(-needed >> 20)}M"
        )

    def topology(self) -> Ranks:
        """Return the topology of the ranks.

        Raises:
            ValueError: rank, world_size, context_parallel and buckets_per_step contradict each
                other.
        """
        return Ranks(
            rank=self.rank,
            world_size=self.world_size,
            context_parallel=self.context_parallel,
            buckets_per_step=self.buckets_per_step,
        )
