"""The streaming shard reader: one global order of buckets, for any number of ranks.

    from pipeline.reader import ShardReader

    with ShardReader("data/uniref50", rank=rank, world_size=world_size) as reader:
        reader.load_state_dict(checkpoint["reader"])  # saved at any world size
        for bucket in reader:  # endless, epoch after epoch
            ...

Reading a bucket takes a few microseconds, so no worker processes are needed. Threads fetch, verify
and map shards before they are needed. Each shard is verified each time it is mapped. Only the
process that opened a reader can use it: in a forked process, iteration raises ForkedReaderError. To
read from several datasets in turn, use `pipeline.reader.mixture` instead of several readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pipeline.reader.cursor import GlobalCursor
from pipeline.reader.guards.data_loader_guard import read_by_number, refuse_data_loader
from pipeline.reader.reader_options import ReaderOptions, checked_url, naming_our_arguments
from pipeline.reader.split_reader import SplitReader
from schemas.errors import StateError
from schemas.manifest import Manifest
from schemas.shard import Bucket
from schemas.text.generation import Generation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BLOCK: Final = 8192
"""Number of positions that one call computes, so large that numpy's overhead is small."""


@naming_our_arguments
@dataclass(eq=False, repr=False)
class ShardReader(ReaderOptions, GlobalCursor):
    """An endless iterator over this rank's buckets of one split.

    An epoch reads one variant of the dataset (see `--variants`). `len` is the number of buckets in
    all variants, not divided by the number of ranks. `epoch_buckets` has the number of buckets in
    each variant.

    Args:
        url: folder of the dataset, or a URL of any protocol that fsspec supports.
        split: split to read: train, valid or test.
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
        generation: generation to read: a number, "latest", or the digest of its manifest, which
            `state_dict` holds as "manifest". None means "latest". The reader keeps its generation
            if the dataset grows.
    Raises:
        DatasetError: the dataset, generation or split is missing, damaged, or cannot be reached.
        InputError: no file system is installed for the URL's protocol. The message names the
            package to install.
        ValueError: one of these:
            - the options about ranks contradict each other
            - seed, prefetch or generation is out of range
            - the cache cannot hold the shards in use and the prefetched shards
    """

    url: str | Path
    split: str = "train"
    generation: Generation | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        ranks, limit = self.topology(), self.cache_limit
        self._split = SplitReader(checked_url(self.url), self.split, self, self.generation)
        self._begin(
            ranks,
            source=str(self.url),
            digest=self._split.manifest.digest,
            split=self.split,
            seed=self.seed,
            take=self._split.take,
            stop=self._split.stop,
            block=_BLOCK,
        )
        needed = self._split.working_set(ranks.step)
        if limit < needed:
            self.close()
            raise self.cache_too_small(f"{self.url} needs", needed)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the position of a state that `state_dict` returned.

        Raises:
            StateError: the state is of another dataset, generation, split, seed or version.
        """
        saved = state.get("manifest") if isinstance(state, Mapping) else None
        digests = [entry.digest for entry in self.manifest.history]
        if saved in digests:
            number = digests.index(saved) + 1
            raise StateError(
                f"the reader's state is of generation {number} of {self.url}, and this reader has "
                f"generation {self.manifest.generation}: open it with generation={number}"
            )
        super().load_state_dict(state)

    @property
    def manifest(self) -> Manifest:
        return self._split.manifest

    @property
    def bytes_fetched(self) -> int:
        """Number of bytes fetched from the store so far, without shards found in the cache."""
        return self._split.bytes_fetched

    @property
    def fetch_seconds(self) -> float:
        """Seconds in which at least one fetch from the store ran."""
        return self._split.fetch_seconds

    @property
    def bytes_verified(self) -> int:
        """Number of bytes of all shards mapped and verified so far."""
        return self._split.bytes_verified

    @property
    def epoch_buckets(self) -> tuple[int, ...]:
        """Number of buckets in each variant. If the dataset has K variants, epoch e reads variant
        e mod K."""
        return self._split.epoch_buckets

    def epoch(self) -> Iterator[Bucket]:
        """Yield this rank's buckets from the current position to the end of the epoch.

        Afterwards, the reader of every rank is at the start of the next epoch, where the next step
        begins. The last step of an epoch may have fewer than `buckets_per_step` buckets, and some
        ranks may get one bucket less than others.
        """
        return self.until(self._split.end_of_epoch(self._frontier()))

    def __len__(self) -> int:
        return self._split.buckets

    def __getitem__(self, number: int) -> Bucket:
        """Return a bucket by its number in stored order, 0 … len - 1. The bucket's position is -1.

        `thdpack inspect --bucket` uses the same numbers.

        Raises:
            IndexError: no bucket has this number.
            DataLoaderError: torch's DataLoader uses this reader as its dataset.
        """
        refuse_data_loader()
        return self._split.bucket(number)

    def __getitems__(self, numbers: object) -> NoReturn:
        """Refuse to be read by torch's DataLoader, which calls this method for a batch.

        Raises:
            DataLoaderError: always.
        """
        raise read_by_number()

    def __repr__(self) -> str:
        manifest = self.manifest
        several = {"generation": manifest.generation} if manifest.generation > 1 else {}
        several |= {"variants": manifest.variants} if manifest.variants > 1 else {}
        return self.described(str(self.url), {"buckets": len(self), **several})

    def records(self, number: int) -> NDArray[np.int64]:
        """Return the record of each sequence in a bucket, int64[num_seqs].

        A record is given by its ordinal, which is its position in the input order. The files in
        `records/` hold the id and the input of each record. `bucket.sequences()` has the same
        order.

        Args:
            number: the bucket's number in stored order; see `number_at`.
        Raises:
            IndexError: no bucket has this number.
        """
        return self._split.records(number)

    def starts(self, number: int) -> NDArray[np.int32]:
        """Return the index in its record of each sequence's first residue, int32[num_seqs].

        The index is above 0 only for pieces (`--long split`) and windows (`--long crop`).

        Args:
            number: the bucket's number in stored order; see `number_at`.
        Raises:
            IndexError: no bucket has this number.
        """
        return self._split.starts(number)

    def number_at(self, position: int) -> int:
        """Return the number, in stored order, of the bucket at a position of the global order.

        Raises:
            ValueError: the position is not in 0 … 2^62 - 1.
        """
        return self._split.number_at(position)
