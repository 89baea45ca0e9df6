"""The streaming shard reader: buckets in one global order, which any number of ranks share and any run can enter anywhere.

    from pipeline.reader import ShardReader

    with ShardReader("data/uniref50", rank=rank, world_size=world_size, buckets_per_step=64) as reader:
        reader.load_state_dict(checkpoint["reader"])  # of any world size
        for bucket in reader:  # endless; epochs follow one another
            ...

A bucket costs a few microseconds, so there are threads (to fetch, verify and map shards before they are needed), no worker
processes. A reader belongs to the process that opened it: iterated in a fork, it raises ForkedReaderError. Each shard is
verified each time it is mapped. Not for: several readers in one thread that are read by turns of
single buckets from many datasets; that is what `pipeline.reader.mixture` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pipeline.reader.cursor import GlobalCursor, Ranks
from pipeline.reader.shard_cache import DEFAULT_BYTES
from pipeline.reader.split_reader import Split
from schemas.bucket import Bucket
from schemas.manifest import Manifest

_BLOCK: Final = 8192
"""Positions looked up at once: enough to make numpy's overhead small."""


class ShardReader(GlobalCursor):
    """This rank's buckets of one split, endlessly. `len` is the number of buckets in an epoch, of all ranks."""

    def __init__(
        self,
        url: str | Path,
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
        """Open a dataset.

        Args:
            url: its folder, or any URL that fsspec knows.
            split: train or valid.
            seed: of the order; the same on every rank.
            rank, world_size: as torch.distributed counts them. Rank r of W takes the positions that are r modulo W.
            context_parallel: so many consecutive ranks get the same buckets; W above is then world_size / context_parallel.
            buckets_per_step: buckets that all ranks take in one optimizer step, a multiple of W; 0 for W.
            cache_dir: folder on a local disk for shards of a remote dataset, shared by all processes of the node; by default
                $XDG_CACHE_HOME/thdpack. A local path is not cached unless this is given (do so for a network file system).
            cache_bytes: limit of all shards in cache_dir; other files there do not count.
            prefetch: shards to fetch, verify and map ahead of those in use; 0 for none, and no threads.
        Raises:
            DatasetError: no such dataset or split, or it cannot be trusted, or the store cannot be reached.
            InputError: no file system is installed for the URL's protocol; says what to install.
            ValueError: ranks that do not fit together, seed or prefetch out of range, or a cache below the working set.
        """
        ranks = Ranks(
            rank=rank,
            world_size=world_size,
            context_parallel=context_parallel,
            buckets_per_step=buckets_per_step,
        )
        self._split = Split(
            str(url),
            split,
            seed=seed,
            cache_dir=cache_dir,
            cache_bytes=cache_bytes,
            prefetch=prefetch,
        )
        digest, buckets = self._split.manifest.digest, self._split
        super().__init__(
            ranks,
            digest=digest,
            split=split,
            seed=seed,
            take=buckets.take,
            stop=buckets.stop,
            block=_BLOCK,
        )
        needed = buckets.working_set(ranks.step)
        if cache_bytes < needed:
            self.close()
            raise ValueError(
                f"cache_bytes is {cache_bytes}, reading {url} needs {needed}: the shards being read and {prefetch} prefetched, at once"
            )

    @property
    def manifest(self) -> Manifest:
        return self._split.manifest

    @property
    def bytes_fetched(self) -> int:
        """Bytes that came from the store so far; what the cache had is not counted."""
        return self._split.bytes_fetched

    @property
    def bytes_verified(self) -> int:
        """Bytes of all shards mapped and verified so far."""
        return self._split.bytes_verified

    def __len__(self) -> int:
        return self._split.buckets

    def __getitem__(self, number: int) -> Bucket:
        """The bucket of a number in stored order, 0 … len - 1, as `thdpack inspect --bucket` counts; its position is -1.

        Raises:
            IndexError: there is no such bucket.
        """
        return self._split.bucket(number)

    def number_at(self, position: int) -> int:
        """The number, in stored order, of the bucket that the global order has at a position.

        Raises:
            ValueError: the position is not in 0 … 2^62 - 1.
        """
        return self._split.number_at(position)
