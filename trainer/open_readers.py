"""Open readers of a dataset's splits, and check that the run can train on the dataset."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from pipeline.reader import ShardReader
from schemas.manifest import Manifest
from schemas.models import check_length_multiple
from schemas.vocabulary import ESM2
from trainer import precision
from trainer.batch import choose_batch
from trainer.config import TrainOptions
from trainer.distributed.agreement import check_same
from trainer.distributed.topology import Topology


def open_readers(
    options: TrainOptions, topology: Topology, stack: ExitStack
) -> tuple[ShardReader, ShardReader | None, TrainOptions, str]:
    """Open the readers, and choose the batch.

    Returns:
        Reader of the train split.
        Reader of the valid split; None if that split is empty or missing.
        The options, with the size of the batch in buckets.
        Reason why the batch differs from the preset's; "" if it does not differ.

    Raises:
        ValueError: the batch does not divide evenly among the ranks, or the model cannot be trained
            on this dataset.
    """
    data = options.data
    storage: dict[str, Any] = {"cache_bytes": data.cache_bytes, "cache_dir": data.cache_dir or None}
    with ShardReader(data.data, prefetch=0, **storage) as first:
        manifest = first.manifest
    _check_dataset(options, manifest, topology)
    batch = choose_batch(data, manifest, topology)
    reader = stack.enter_context(
        ShardReader(
            data.data,
            rank=topology.data_rank,
            world_size=topology.data_ranks,
            seed=data.seed,
            buckets_per_step=batch.data.buckets_per_step,
            prefetch=data.prefetch,
            **storage,
        )
    )
    valid = None
    if "valid" in manifest.splits and manifest.splits["valid"].buckets:
        valid = stack.enter_context(ShardReader(data.data, split="valid", prefetch=0, **storage))
    return reader, valid, replace(options, data=batch.data), batch.note


def _check_dataset(options: TrainOptions, manifest: Manifest, topology: Topology) -> None:
    """Check that all ranks read the same dataset, and that the model can be trained on it.

    Raises:
        ValueError: ranks read different datasets, or the model cannot be trained on this dataset.
    """
    check_same(topology, {"a dataset whose manifest has digest": manifest.digest})
    data = options.data.data
    if manifest.vocabulary != ESM2.name:
        raise ValueError(f"{data} has vocabulary {manifest.vocabulary}, this model has {ESM2.name}")
    check_length_multiple(data, manifest.length_multiple)
    _check_slices(options, manifest)
    precision.check_model(
        options.compute,
        options.model,
        data=data,
        slice_tokens=manifest.capacity // options.compute.context_parallel,
    )


def _check_slices(options: TrainOptions, manifest: Manifest) -> None:
    """Check that --context-parallel divides the buckets evenly, and that each of its ranks gets an
    attention head.

    Raises:
        ValueError: a bucket cannot be divided, or there are more ranks than attention heads.
    """
    ranks, heads = options.compute.context_parallel, options.model.heads
    if manifest.capacity % ranks:
        raise ValueError(
            f"{options.data.data} has buckets of {manifest.capacity} tokens, which "
            f"--context-parallel {ranks} does not divide: change --context-parallel, "
            f"or build the dataset with a --capacity that is a multiple of {ranks}"
        )
    if heads < ranks:
        raise ValueError(
            f"--context-parallel {ranks} divides the attention heads among {ranks} ranks, but the "
            f"model has {heads} heads: use --context-parallel {heads} or less"
        )
