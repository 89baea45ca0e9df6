"""Read one split of a dataset by positions in its global order.

The module finds, opens and releases the shards that hold those positions. A window is a group of
consecutive shards whose buckets are shuffled together (see `global_order`).
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from operator import index
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.reader.bucket_shape import BucketShape
from pipeline.reader.cache.cache_folder import default_cache_dir
from pipeline.reader.cache.shard_cache import ShardCache
from pipeline.reader.guards.fork_guard import call_after_fork
from pipeline.reader.mapped_shard import DamagedShardError, MappedShard
from pipeline.reader.order.global_order import WINDOW_SHARDS, Order
from pipeline.reader.order.split_shards import SplitShards
from pipeline.reader.prefetch import ShardLoader
from pipeline.reader.reader_options import ReaderOptions
from pipeline.storage.hub.revision import pinned
from pipeline.storage.read_manifest import read_manifest
from pipeline.storage.retries import ClosedError, RemoteStore
from pipeline.storage.urls import local_path
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.shard import Bucket
from schemas.text.generation import Generation
from schemas.text.option_checks import whole_number
from schemas.text.phrases import REBUILD

T = TypeVar("T")

NextUse = Callable[[], Iterator[str]]
"""Function that yields hashes of shards in the order of their next use."""


class SplitReader:
    """The buckets of one split in their global order."""

    def __init__(
        self, url: str, split: str, options: ReaderOptions, generation: Generation | None
    ) -> None:
        """Read the manifest, and start the threads that open shards. The manifest is read only
        here, so a new generation changes nothing in an open reader.

        Raises:
            DatasetError: the dataset, generation or split is missing, damaged, or cannot be
                reached.
            InputError: no file system is installed for the URL's protocol.
            ValueError: seed, prefetch or generation is out of range.
        """
        seed, prefetch = index(options.seed), options.prefetch  # `index` accepts numpy integers
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed is {seed}, expected 0 ≤ seed < 2^64")
        if prefetch < 0:
            raise ValueError(f"prefetch is {prefetch}, expected a number of shards, at least 0")
        self._stopped = threading.Event()
        self.url = url = pinned(url, stopped=self._stopped)
        self.manifest: Manifest = read_manifest(url, generation, stopped=self._stopped)
        self.shape = BucketShape.of(self.manifest)
        if split not in self.manifest.shards:
            close = difflib.get_close_matches(str(split).lower(), self.manifest.shards, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise DatasetError(
                f"{url}: no split {split!r}; it has {', '.join(self.manifest.shards)}{hint}"
            )
        self._shards = SplitShards(self.manifest, split)
        if not self._shards.buckets[0]:
            raise DatasetError(
                f"{url}: split {split!r} is empty: build the dataset with a larger share of "
                f"{split}, see --split of thdpack preprocess"
            )
        self._order = Order(self._shards.buckets, self._shards.counts, seed)
        self._prefetch = prefetch
        self._place = 0, 0
        self._mapped: dict[int, MappedShard] = {}
        self._checked: set[int] = set()
        self._last_numbered: tuple[int, MappedShard] | None = None
        """The shard of the last bucket read by number."""
        self._numbered_lock, self._count = threading.Lock(), threading.Lock()
        self.bytes_verified = 0
        self._next_use: NextUse = self._own_next_use
        self._folder = local_path(url)
        self._cache = self._open_cache(options)
        self._loader = ShardLoader(self._open, threads=prefetch, stopped=self._stopped)
        call_after_fork(self)

    def _open_cache(self, options: ReaderOptions) -> ShardCache | None:
        """Return the cache of the dataset; None for a local dataset if cache_dir is not given."""
        folder = options.cache_folder
        if self._folder is not None and folder is None:
            return None
        url = self.url if self._folder is None else self._folder.absolute().as_uri()
        return ShardCache(
            folder or default_cache_dir(),
            options.cache_limit,
            RemoteStore(url, self._stopped),
            lambda: self._next_use(),
        )

    def join_mixture(self, shape: BucketShape, next_use: NextUse) -> None:
        """Join a mixture: use its bucket shape, and its order of next use for evictions.

        Args:
            shape: shape that fits the buckets of all datasets of the mixture.
            next_use: function that yields hashes of all datasets' shards, in the order of their
                next use.
        """
        self.shape, self._next_use = shape, next_use

    def _own_next_use(self) -> Iterator[str]:
        """Yield hashes of the shards in the order of their next use."""
        return (digest for _, digest in self.uses())

    def after_fork(self) -> None:
        """Replace locks that another thread may have held. A forked process may read by number."""
        self._numbered_lock, self._count = threading.Lock(), threading.Lock()

    @property
    def buckets(self) -> int:
        """Number of buckets of the split in all variants."""
        return self._order.buckets

    @property
    def epoch_buckets(self) -> tuple[int, ...]:
        """Number of buckets of the split in each variant."""
        return tuple(self._shards.buckets)

    @property
    def bytes_fetched(self) -> int:
        """Number of bytes fetched from the store so far."""
        return self._cache.bytes_fetched if self._cache else 0

    @property
    def fetch_seconds(self) -> float:
        """Seconds in which at least one fetch from the store ran."""
        return self._cache.fetch_seconds if self._cache else 0.0

    def working_set(self, step: int) -> int:
        """Return the number of bytes that the cache must have room for; 0 without a cache.

        Three kinds of shards are in use at the same time: those of the window, the prefetched
        shards, and those that hold the `step` buckets of one step. The result assumes that the
        shards in use are the largest shards of the split.
        """
        if self._cache is None:
            return 0
        entries = [
            entry
            for variant in range(self.manifest.variants)
            for entry in self._shards.entries(variant)
        ]
        fewest = min(entry.buckets for entry in entries)
        shards = WINDOW_SHARDS + self._prefetch + -(-step // fewest)
        return sum(sorted((entry.bytes for entry in entries), reverse=True)[:shards])

    def take(
        self, positions: NDArray[np.int64], labels: NDArray[np.int64] | None = None
    ) -> Iterator[Bucket]:
        """Yield the buckets at ascending positions.

        Args:
            positions: int64[n], positions in this split's order.
            labels: int64[n], positions in a mixture's order; None means `positions`.
        """
        labels = positions if labels is None else labels
        done = 0
        while done < positions.size:
            epoch, first = self._order.epoch_at(int(positions[done]))
            order = self._order.epoch(epoch)
            window = order.window_at(int(positions[done]) - first)
            end = first + int(order.starts[window + 1])
            in_window = slice(done, int(np.searchsorted(positions, end)))
            shards, rows = order.locate(window, positions[in_window] - first)
            self._enter(epoch, window)
            open_shards = self._mapped
            for shard, row, label in zip(
                shards.tolist(), rows.tolist(), labels[in_window].tolist(), strict=True
            ):
                found = open_shards.get(shard)
                if found is None:  # `except KeyError` would add a KeyError to later tracebacks
                    found = open_shards[shard] = self._loader.get(shard)
                yield found.bucket(row, label, epoch)
            done = in_window.stop

    def end_of_epoch(self, position: int) -> int:
        """Return the first position after the epoch that holds a position."""
        return self._order.end_of_epoch(position)

    def number_at(self, position: int) -> int:
        """Return the number, in stored order, of the bucket at a position."""
        return self._shards.number(*self._order.locate(whole_number("position", position)))

    def bucket(self, number: int) -> Bucket:
        """Return a bucket by its number in stored order.

        Raises:
            IndexError: no bucket has this number.
            ClosedError: `stop` was called.
        """
        return self._numbered(number, lambda shard, row: shard.bucket(row, -1, -1))

    def records(self, number: int) -> NDArray[np.int64]:
        """Return the record of each sequence in a bucket, int64[num_seqs].

        A record is given by its ordinal, which is its position in the input order.

        Raises:
            IndexError, ClosedError: see `bucket`.
        """
        return self._numbered(number, lambda shard, row: shard.records(row))

    def starts(self, number: int) -> NDArray[np.int32]:
        """Return the index in its record of each sequence's first residue, int32[num_seqs].

        Raises:
            IndexError, ClosedError: see `bucket`.
        """
        return self._numbered(number, lambda shard, row: shard.starts(row))

    def _numbered(self, number: int, read: Callable[[MappedShard, int], T]) -> T:
        """Call `read` with the shard and row of a bucket, and return its result."""
        number = whole_number("the number of a bucket", number)
        if not 0 <= number < self.buckets:
            raise IndexError(
                f"no bucket {number}: the split has {self.buckets} buckets, numbered from 0"
            )
        shard, row = self._shards.find(number)
        mapped = self._mapped.get(shard)
        if mapped is not None:
            return read(mapped, row)
        with self._numbered_lock:
            if self._stopped.is_set():
                raise ClosedError()
            if self._last_numbered is None or self._last_numbered[0] != shard:
                self._release_last_numbered()
                self._last_numbered = shard, self._open(shard)
            return read(self._last_numbered[1], row)

    def stop(self) -> None:
        """End the threads, and release shards and locks."""
        self._loader.stop()
        self._mapped = {}
        with self._numbered_lock:
            self._release_last_numbered()

    def _release_last_numbered(self) -> None:
        if self._last_numbered is not None:
            self._last_numbered[1].release()
            self._last_numbered = None

    def _enter(self, epoch: int, window: int) -> None:
        """Release the shards that this window does not need, and prefetch the next shards."""
        if self._mapped and self._place == (epoch, window):
            return
        self._place = epoch, window
        now = self._order.epoch(epoch).window_shards(window)
        self._mapped = {shard: mapped for shard, mapped in self._mapped.items() if shard in now}
        self._loader.want([*now, *islice(self._order.shards_after(epoch, window), self._prefetch)])

    def _open(self, shard: int) -> MappedShard:
        entry, first_time = self._shards.entry(shard), shard not in self._checked
        if self._cache is not None:
            shard_map = self._cache.open(entry, self.shape, check_buckets=first_time)
        else:
            assert self._folder is not None
            try:
                shard_map = MappedShard(
                    self._folder / entry.name, entry, self.shape, check_buckets=first_time
                )
            except DamagedShardError as error:
                raise DamagedShardError(f"{error}; {REBUILD}") from None
        self._checked.add(shard)
        with self._count:
            self.bytes_verified += entry.bytes
        return shard_map

    def uses(self) -> Iterator[tuple[int, str]]:
        """Yield the next uses of shards, over two epochs, beginning with the current window.

        Each item is a pair: the number of buckets that are read before a shard is used, and the
        hash of this shard.
        """
        epoch, window = self._place
        next_variants = (self._order.variant(epoch + i) for i in range(2))
        shards = sum(len(self._shards.entries(variant)) for variant in next_variants)
        after = islice(self._order.shards_after(epoch, window), shards)
        distance = 0
        for shard in (*self._order.epoch(epoch).window_shards(window), *after):
            entry = self._shards.entry(shard)
            yield distance, entry.xxh3_128
            distance += entry.buckets
