"""Open the readers of a run, and check that the run can train on its dataset or datasets."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pipeline.planning.mixture import datasets_of, mixed
from pipeline.reader import Mixture, ShardReader
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.models import check_length_multiple
from schemas.shard import Bucket
from schemas.text.redact import without_credentials
from schemas.vocabulary import ESM2
from trainer import precision
from trainer.batch import choose_batch
from trainer.checkpoints.run_state import RunState
from trainer.config import TrainOptions
from trainer.distributed.agreement import check_same
from trainer.distributed.topology import Topology
from trainer.readers.check_cache import check_cache
from trainer.readers.choose_generations import choose_generations
from trainer.readers.mixing import changes_of, dataset_names


@dataclass(frozen=True, kw_only=True, slots=True)
class Readers:
    """Readers of a run.

    train: endless reader of this rank's training buckets.
    valid: buckets of the split that validations read (--valid-split), from all datasets; may be
        empty.
    manifest: manifest of the dataset; for several datasets, the result of `mixed`.
    manifests: manifest of each dataset, in the order of --data.
    generations: sentences that say which generations are read; see `Chosen.note`.
    """

    train: ShardReader | Mixture
    valid: Buckets
    manifest: Manifest
    manifests: tuple[Manifest, ...]
    generations: list[str]

    @property
    def epoch_buckets(self) -> tuple[int, ...]:
        """Number of buckets in each variant of the dataset. A mixture has only one number: its
        epoch ends when one of the datasets is about to repeat for the first time."""
        if isinstance(self.train, ShardReader):
            return self.train.epoch_buckets
        return (self.manifest.splits["train"].buckets,)


class Buckets:
    """Concatenated buckets of one split of several datasets, from variant 0 of each dataset.

    names: names of the datasets, in the order of their buckets.
    """

    def __init__(self, readers: Mapping[str, ShardReader]) -> None:
        """Args:
        readers: reader of each dataset, by name.
        """
        self.names: Final = tuple(readers)
        self._readers = list(readers.values())
        counts = (reader.manifest.splits[reader.split].buckets for reader in self._readers)
        self._ends = list(itertools.accumulate(counts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def dataset_of(self, number: int) -> int:
        """Return the index of the dataset that a bucket belongs to."""
        return bisect.bisect_right(self._ends, number)

    def __getitem__(self, number: int) -> Bucket:
        which = self.dataset_of(number)
        begin = self._ends[which - 1] if which else 0
        return self._readers[which][number - begin]


def refuse_missing_shards(options: TrainOptions, readers: Readers) -> None:
    """Check that all shards of the datasets on this machine's disks exist and have the right size.
    Their content is not read.

    Raises:
        DatasetError: a shard is missing or truncated.
    """
    train = readers.train
    manifests = [train.manifest] if isinstance(train, ShardReader) else train.manifests
    for url, manifest in zip(datasets_of(options.data.data), manifests, strict=True):
        if "://" in url:
            continue  # a store would need one request for each shard
        for _, _, entry in manifest.all_shards():
            path = Path(url) / entry.name
            found = path.stat().st_size if path.is_file() else None
            if found != entry.bytes:
                wrong = "missing" if found is None else f"has {found:,} of {entry.bytes:,} bytes"
                raise DatasetError(f"{path}: {wrong}; `thdpack verify {url}` lists all faults")


def open_readers(
    options: TrainOptions, topology: Topology, stack: ExitStack, before: RunState | None
) -> tuple[Readers, TrainOptions, str]:
    """Open the readers, and choose the batch.

    Args:
        before: state of the run to resume. The generations that this run began with are read,
            unless the options say otherwise.
    Returns:
        The readers.
        The options, with the size of the batch in buckets.
        `Batch.note`; "" for a run to resume, which keeps its batch.

    Raises:
        ValueError: one of these:
            - the batch does not divide evenly among the ranks
            - the datasets of a mixture have buckets of different sizes
            - the model cannot be trained on a dataset
            - --data or --reweight is wrong
            - `--valid-split test` is given, but no dataset has a test split
        CacheError: the disk of --cache-dir has too little free space.
    """
    data = options.data
    storage: dict[str, Any] = {"cache_bytes": data.cache_bytes, "cache_dir": data.cache_dir or None}
    weights = datasets_of(data.data)
    if data.reweight and len(weights) == 1:
        raise ValueError("--reweight is for several datasets: give --data A=0.7 --data B=0.3")
    chosen = choose_generations(list(weights), options, before, topology, storage)
    manifests = [each.manifest for each in chosen]
    for url, manifest in zip(weights, manifests, strict=True):
        _check_dataset(options, url, manifest)
    digests = ", ".join(manifest.digest for manifest in manifests)
    check_cache(
        list(weights),
        manifests,
        ("train", options.output.valid_split),
        cache_dir=data.cache_dir,
        cache_bytes=data.cache_bytes,
    )
    check_same(topology, {"a dataset whose manifest has digest": digests})
    manifest = mixed(manifests, list(weights.values()), list(weights))
    batch = choose_batch(data, manifest, topology)
    ranks: dict[str, Any] = {
        "rank": topology.data_rank,
        "world_size": topology.data_ranks,
        "seed": data.seed,
        "buckets_per_step": batch.data.buckets_per_step,
        "prefetch": data.prefetch,
        **storage,
    }
    # name each generation by its digest, because the dataset may grow between two openings
    pinned = [each.digest for each in manifests]
    train = (
        ShardReader(next(iter(weights)), generation=pinned[0], **ranks)
        if len(weights) == 1
        else Mixture(
            list(weights.items()),
            changes=[
                (step * batch.data.buckets_per_step, changed)
                for step, changed in changes_of(data.reweight)
            ],
            generations=pinned,
            **ranks,
        )
    )
    stack.enter_context(train)
    split = options.output.valid_split
    names = dataset_names(list(weights))
    valid = Buckets(
        {
            name: stack.enter_context(
                ShardReader(url, split=split, prefetch=0, generation=each.digest, **storage)
            )
            for name, url, each in zip(names, weights, manifests, strict=True)
            if each.splits[split].buckets
        }
    )
    if split == "test" and not valid:
        shown = ", ".join(map(without_credentials, weights))
        raise ValueError(
            f"--valid-split is test, but the test split of {shown} is empty: build "
            "the dataset with thdpack preprocess --split train=0.98,valid=0.01,test=0.01"
        )
    readers = Readers(
        train=train,
        valid=valid,
        manifest=manifest,
        manifests=tuple(manifests),
        generations=[note for each in chosen if (note := each.note)],
    )
    return readers, replace(options, data=batch.data), "" if before else batch.note


def _check_dataset(options: TrainOptions, url: str, manifest: Manifest) -> None:
    """Check that the model can be trained on a dataset.

    Raises:
        ValueError: the dataset is not compatible with the model or the options.
    """
    shown = without_credentials(url)
    if manifest.vocabulary != ESM2.name:
        raise ValueError(
            f"{shown} has vocabulary {manifest.vocabulary}, but this model has {ESM2.name}"
        )
    check_length_multiple(shown, manifest.length_multiple)
    _check_slices(options, shown, manifest)
    precision.check_model(
        options.compute,
        options.model,
        data=shown,
        slice_tokens=manifest.capacity // options.compute.context_parallel,
    )


def _check_slices(options: TrainOptions, data: str, manifest: Manifest) -> None:
    """Check that --context-parallel divides the buckets evenly, and leaves each rank at least one
    attention head.

    Raises:
        ValueError: a bucket cannot be divided, or there are more ranks than attention heads.
    """
    ranks, heads = options.compute.context_parallel, options.model.heads
    if manifest.capacity % ranks:
        raise ValueError(
            f"{data} has buckets of {manifest.capacity} tokens, which "
            f"--context-parallel {ranks} does not divide: change --context-parallel, "
            f"or build the dataset with a --capacity that is a multiple of {ranks}"
        )
    if heads < ranks:
        raise ValueError(
            f"--context-parallel {ranks} divides the attention heads among {ranks} ranks, but the "
            f"model has {heads} heads: use --context-parallel {heads} or less"
        )
