"""What a run starts from: the last checkpoint of its folder or a Hugging Face model, and readers of a dataset that suits both."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.reader import ShardReader
from schemas.errors import CheckpointError
from schemas.manifest import Manifest
from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from trainer import precision
from trainer.checkpoints.checkpoint import (
    KEPT,
    LATEST,
    Checkpoints,
    check_latest,
    names,
    read_latest,
)
from trainer.checkpoints.run_state import State, read_state
from trainer.config import DataOptions, TrainOptions
from trainer.distributed.agreement import check_same, from_main
from trainer.distributed.topology import Parallel
from trainer.model import huggingface


def last_state(options: TrainOptions, parallel: Parallel) -> State | None:
    """Return the state of the last checkpoint in the run's folder, on all ranks; None if there is none.

    Raises:
        ValueError: there is one, and it is not to be used.
        CheckpointError: it is damaged; says which one is not, and how to resume from that.
    """
    out = Path(options.output.out)
    folder = out / "checkpoints"
    latest: str = from_main(parallel, partial(_latest, out, resume=options.output.resume))
    if not latest:
        return None
    check_latest(folder, latest, parallel)
    state: State = from_main(parallel, lambda: read_state(folder / latest))
    if Checkpoints.name(state.step) != latest:
        raise CheckpointError(
            f"{folder / latest} is the checkpoint of step {state.step:,} under another name: rename it to {Checkpoints.name(state.step)}"
        )
    return state


def _latest(out: Path, *, resume: str) -> str:
    """The last checkpoint's name; "" if there is none."""
    folder = out / "checkpoints"
    latest = read_latest(folder)
    found = names(folder)
    if not latest and found:
        raise ValueError(
            f"{folder} has checkpoints, but no file `{LATEST}`: write the name of one into it, say {found[-1]}. {KEPT}. Or choose another --out"
        )
    if latest and resume == "never":
        raise ValueError(
            f"{out} holds a run, and --resume is never: choose another --out, or remove that folder"
        )
    return latest


def from_hugging_face(
    options: TrainOptions, parallel: Parallel
) -> tuple[TrainOptions, dict[str, Tensor]]:
    """Options with the shape of the Hugging Face model that is named, and its tensors: on rank 0, and empty ones of the meta device elsewhere."""
    found: list[dict[str, Tensor]] = []

    def shape() -> tuple[ModelOptions, dict[str, torch.Size]]:
        model, tensors = huggingface.load(options.output.init_from)
        found.append(tensors)
        return model, {name: tensor.shape for name, tensor in tensors.items()}

    model, shapes = from_main(parallel, shape)
    tensors = (
        found[0]
        if found
        else {name: torch.empty(size, device="meta") for name, size in shapes.items()}
    )
    return replace(options, model=replace(model, gelu=options.model.gelu)), tensors


def open_readers(
    options: TrainOptions, parallel: Parallel, stack: ExitStack
) -> tuple[ShardReader, ShardReader | None, TrainOptions]:
    """Readers of both splits (no second one if it is empty), and the options with the batch in buckets.

    Raises:
        ValueError: a batch that does not divide among ranks, or a dataset that the model cannot take.
    """
    data = options.data
    storage: dict[str, Any] = {"cache_bytes": data.cache_bytes, "cache_dir": data.cache_dir or None}
    with ShardReader(data.data, prefetch=0, **storage) as first:
        manifest = first.manifest
    check_same(parallel, {"a dataset whose manifest has digest": manifest.digest})
    if manifest.vocabulary != ESM2.name:
        raise ValueError(
            f"{data.data} has vocabulary {manifest.vocabulary}, this model knows {ESM2.name}"
        )
    if manifest.length_multiple > 1:
        raise ValueError(
            f"{data.data} was built with --length-multiple {manifest.length_multiple}: tokens would attend to padding; build it without"
        )
    _check_slices(options, manifest)
    slice_tokens = manifest.capacity // options.compute.context_parallel
    precision.check(
        options.compute,
        options.model,
        data=data.data,
        slice_tokens=slice_tokens,
        world_size=parallel.world_size,
    )
    batch = _batch(data, manifest, parallel)
    ranks = {
        "rank": parallel.data_rank,
        "world_size": parallel.data_ranks,
        "buckets_per_step": batch,
    }
    reader = stack.enter_context(
        ShardReader(data.data, seed=data.seed, prefetch=data.prefetch, **ranks, **storage)
    )
    valid = None
    if "valid" in manifest.splits and manifest.splits["valid"].buckets:
        valid = stack.enter_context(ShardReader(data.data, split="valid", prefetch=0, **storage))
    return reader, valid, replace(options, data=replace(data, buckets_per_step=batch))


def _check_slices(options: TrainOptions, manifest: Manifest) -> None:
    """Raises: ValueError, if the dataset's buckets or the model's heads cannot be shared out as --context-parallel says."""
    ranks, heads = options.compute.context_parallel, options.model.heads
    if manifest.capacity % ranks:
        raise ValueError(
            f"{options.data.data} has buckets of {manifest.capacity} tokens, which --context-parallel {ranks} does not divide: "
            f"change it, or build the dataset with a --capacity that is a multiple of it"
        )
    if heads < ranks:
        raise ValueError(
            f"--context-parallel {ranks} shares out attention heads, and the model has {heads}: use at most that many"
        )


def _batch(data: DataOptions, manifest: Manifest, parallel: Parallel) -> int:
    """Buckets of a step, over all ranks."""
    unit = parallel.data_ranks * data.buckets_per_micro_batch
    if not data.buckets_per_step:
        return max(1, round(data.tokens_per_step / manifest.capacity / unit)) * unit
    if data.buckets_per_step % unit:
        those = (
            f"{parallel.data_ranks} ranks"
            if parallel.slices.ranks == 1
            else f"{parallel.data_ranks} groups of {parallel.slices.ranks} ranks"
        )
        raise ValueError(
            f"{data.buckets_per_step} buckets a step do not divide among {those} × {data.buckets_per_micro_batch} buckets a micro-batch: "
            f"change the number of ranks, --buckets-per-micro-batch or, for a new run, --buckets-per-step"
        )
    return data.buckets_per_step
