"""A dataset for torch's DataLoader that yields buckets in the order of `ShardReader`.

    from torchdata.stateful_dataloader import StatefulDataLoader

    dataset = ShardDataset("data/uniref50")
    loader = StatefulDataLoader(dataset, batch_size=None, num_workers=2)
    for batch in loader:  # endless: a dict of tensors for each bucket
        ...
    loader.state_dict()  # resumes after the last batch, with the same number of workers
    dataset.state_after(batches)  # resumes there with any number of workers and ranks

A `ShardReader` alone is faster, because its threads need no copies between processes. Use this
class if a framework expects a DataLoader, or if a transform needs more than one core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from pipeline.reader.cache.cache_folder import DEFAULT_BYTES
from pipeline.reader.ranks import Ranks
from pipeline.reader.reader_options import naming_our_arguments
from pipeline.reader.shard_reader import ShardReader
from schemas.errors import StateError
from schemas.shard import Bucket
from schemas.text.generation import Generation
from schemas.text.option_checks import whole_number
from schemas.text.redact import without_credentials

_WORKERS: Final = "workers"
_GROUPS: Final = "groups"
"""Keys of a worker's state, in addition to those of the reader's state: the number of workers of
each rank, and the number of context-parallel groups (the number of ranks without such groups)."""


@naming_our_arguments
class ShardDataset(IterableDataset[dict[str, Any]]):
    """The buckets of this rank, as torch tensors, in the order of `ShardReader`.

    Use `DataLoader(dataset, batch_size=None, num_workers=…)` of torch, or StatefulDataLoader of
    torchdata. A bucket is then a batch. The loader of rank r yields exactly the buckets of
    `ShardReader(…, rank=r, world_size=…)`, in the same order, for any number of workers:

    - Let b0, b1, b2 … be the buckets of the rank, from the start of the pass. Worker w of W reads
      bw, b(w + W), b(w + 2W) …
    - The loader takes one batch from each worker in turn, and so yields b0, b1, b2 …
    - With `in_order=False` or with a batch_size, the loader yields the same buckets in another
      order.

    Each worker opens its own reader. The dataset can therefore be sent to workers by fork and by
    spawn. The generation is fixed when the dataset is created.

    A pass (`iter`) begins at position 0. After `load_state_dict`, the next pass begins at the
    loaded position. If the loader has workers, and you called this class's `load_state_dict`
    yourself, every later pass begins there, because the workers are copies of this dataset.

    Args:
        url: folder of the dataset, or a URL of any protocol that fsspec supports.
        split: split to read: train, valid or test.
        epochs: a pass ends with epoch `epochs` - 1, where epochs count from 0. None means that a
            pass is endless. If the number of buckets is not a multiple of the number of ranks, some
            ranks get one bucket less than others. To train with several ranks, use None, and stop
            after a number of steps.
        transform: function that returns a dict for a bucket, such as `bshd` or
            `MaskTokens(layout=bshd)`. Its arrays become tensors. For spawned workers, the function
            must be importable, so it cannot be a lambda. None means: all fields of the bucket.
        generation: generation to read: a number, "latest", or the digest of its manifest. None
            means "latest".
        seed: seed of the order, the same on every rank.
        rank: rank of this process. None means the rank in torch.distributed, or 0 without it.
        world_size: number of ranks. None means that of torch.distributed, or 1 without it.
        context_parallel: number of consecutive ranks that get the same buckets.
        cache_dir: local folder for cached shards, as for `ShardReader`.
        cache_bytes: maximum total size of the shards in cache_dir, for all workers of the node.
        prefetch: number of shards that each worker fetches before they are needed; 0 starts no
            threads.
    Yields, without a transform, the fields of `Bucket`:
        input_ids uint8[capacity], cu_seqlens int32[slots + 1], and as int: max_seqlen, num_seqs,
        num_tokens, position and epoch.
    Raises:
        DatasetError: the dataset, generation or split is missing, damaged, or cannot be reached.
        InputError: no file system is installed for the URL's protocol.
        ValueError: an option is out of range, or the options about ranks contradict each other.
    """

    def __init__(
        self,
        url: str | Path,
        split: str = "train",
        *,
        epochs: int | None = None,
        transform: Callable[[Bucket], Mapping[str, Any]] | None = None,
        generation: Generation | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        context_parallel: int = 1,
        cache_dir: str | Path | None = None,
        cache_bytes: int | str = DEFAULT_BYTES,
        prefetch: int = 4,
    ) -> None:
        super().__init__()
        if epochs is not None and whole_number("epochs", epochs) < 1:
            raise ValueError(f"epochs is {epochs}, expected at least 1")
        if (rank is None) != (world_size is None):
            raise ValueError("give rank and world_size together, or neither of them")
        self._url, self._split, self._generation = url, split, generation
        self._seed, self._prefetch = seed, prefetch
        self._cache_dir, self._cache_bytes = cache_dir, cache_bytes
        self._transform = transform or _fields
        self._given = None if rank is None or world_size is None else (rank, world_size)
        self._context_parallel = context_parallel
        self._ranks()  # refuses contradictory options
        with self._open(0, 1) as reader:
            # Workers open this generation, even if the dataset grows before they start.
            self._generation = reader.manifest.digest
            self._identity = reader.state_dict()
            self._end = _end_of_epochs(reader.epoch_buckets, epochs)
        self._loaded = 0
        """Position of the last loaded state, from which `state_after` counts."""
        self._start = 0
        """Position where the next pass in this process begins."""
        self._pass: tuple[ShardReader | None, int] = (None, 0)
        """Reader of the current pass, if it has been opened, and the position where it began."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        start, self._start = self._start, 0
        self._pass = (None, start)  # a DataLoader may ask for the state before the first bucket
        return self._from(start)

    def _from(self, start: int) -> Iterator[dict[str, Any]]:
        """Yield this worker's share of the rank's buckets, from a position of the global order."""
        worker, workers = _worker()
        ranks = self._ranks()
        # Workers are ranks of the reader. Worker 0 gets the first bucket of this rank after start.
        first = start + (ranks.group - start) % ranks.groups
        readers = ranks.groups * workers
        with self._open((first + worker * ranks.groups) % readers, readers) as reader:
            reader.seek(start)
            self._pass = (reader, start)
            for bucket in reader if self._end is None else reader.until(self._end):
                yield _tensors(self._transform(bucket))

    def state_dict(self) -> dict[str, int | str]:
        """Return the state of the pass in this process, after the last bucket that it yielded.

        StatefulDataLoader calls this method in each worker. To save a state that can be loaded with
        any number of workers, use `state_after`.

        Returns:
            The state of a `ShardReader`. In a worker, the state also has the number of workers and
            the number of groups of ranks, and can be loaded only with the same numbers.
        """
        reader, start = self._pass
        position = start if reader is None else reader.position
        state = {**self._identity, "position": position}
        if get_worker_info() is None:
            return state
        return {**state, _WORKERS: _worker()[1], _GROUPS: self._ranks().groups}

    def state_after(self, batches: int) -> dict[str, int | str]:
        """Return the state in which every rank has got a number of batches.

        The state can be loaded with any number of workers and ranks, also by a `ShardReader`. Use
        it if your loader is not a StatefulDataLoader, or if the number of workers may change.

        Args:
            batches: number of buckets that this rank's loop has got since `load_state_dict` of this
                dataset, or since position 0. Batches that workers have prefetched do not count. A
                StatefulDataLoader with workers loads its state in them, and not in this dataset.
        Raises:
            ValueError: batches is negative.
        """
        if whole_number("batches", batches) < 0:
            raise ValueError(f"batches is {batches}, expected at least 0")
        position = self._loaded + batches * self._ranks().groups
        return {
            **self._identity,
            "position": position if self._end is None else min(position, self._end),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass begin at the position of a state.

        Call this method before the DataLoader starts its workers. StatefulDataLoader calls it
        itself, in each worker.

        Args:
            state: a state of this class or of `ShardReader`.
        Raises:
            StateError: the state is of another dataset, generation, split, seed or version; or a
                worker saved it, and the number of workers or of ranks has changed.
        """
        with self._open(0, 1, prefetch=0) as reader:
            reader.load_state_dict(state)
            position = reader.position
        saved = state.get(_WORKERS, 1), state.get(_GROUPS, self._ranks().groups)
        ours = _worker()[1], self._ranks().groups
        if (_WORKERS in state and saved[0] != ours[0]) or (saved[0] != 1 and saved != ours):
            raise StateError(
                f"the state was saved by one of {saved[0]} workers, with buckets divided over "
                f"{saved[1]} ranks, and here are {ours[0]} workers and {ours[1]} ranks: use the "
                "same numbers, or save dataset.state_after(batches), which fits any numbers"
            )
        self._loaded = self._start = position
        self._pass = (None, position)

    def __repr__(self) -> str:
        ranks = self._ranks()
        words = (
            f"{str(self._url)!r}, split={self._split!r}, rank={ranks.rank}, "
            f"world_size={ranks.world_size}, seed={self._seed}, position={self._start}"
        )
        return without_credentials(f"{type(self).__name__}({words})")

    def __getstate__(self) -> dict[str, Any]:
        """Return what a spawned worker needs, without the reader, which cannot be sent to it."""
        ranks = self._ranks()  # torch.distributed is not initialized in the worker
        return {
            **self.__dict__,
            "_given": (ranks.rank, ranks.world_size),
            "_pass": (None, self._pass[1]),
        }

    def _ranks(self) -> Ranks:
        """Return the topology of the ranks.

        Raises:
            ValueError: the options about ranks contradict each other.
        """
        rank, world_size = self._given or (0, 1)
        distributed = torch.distributed
        if self._given is None and distributed.is_available() and distributed.is_initialized():
            rank, world_size = distributed.get_rank(), distributed.get_world_size()
        return Ranks(
            rank=rank,
            world_size=world_size,
            context_parallel=self._context_parallel,
            buckets_per_step=0,
        )

    def _open(self, rank: int, world_size: int, *, prefetch: int | None = None) -> ShardReader:
        return ShardReader(
            self._url,
            self._split,
            generation=self._generation,
            seed=self._seed,
            rank=rank,
            world_size=world_size,
            cache_dir=self._cache_dir,
            cache_bytes=self._cache_bytes,
            prefetch=self._prefetch if prefetch is None else prefetch,
        )


def _worker() -> tuple[int, int]:
    """Return this worker's number, and the number of workers of the DataLoader, at least 1."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _end_of_epochs(epoch_buckets: Sequence[int], epochs: int | None) -> int | None:
    """Return the first position after a number of epochs; None if they are endless.

    Args:
        epoch_buckets: number of buckets in each variant; epoch e reads variant e mod K.
    """
    if epochs is None:
        return None
    rounds, rest = divmod(epochs, len(epoch_buckets))
    return rounds * sum(epoch_buckets) + sum(epoch_buckets[:rest])


def _fields(bucket: Bucket) -> dict[str, Any]:
    return {field.name: getattr(bucket, field.name) for field in fields(bucket)}


def _tensors(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict in which each numpy array is a tensor. Only read-only arrays are copied."""
    return {
        name: (
            torch.from_numpy(value if value.flags.writeable else value.copy())
            if isinstance(value, np.ndarray)
            else value
        )
        for name, value in batch.items()
    }
