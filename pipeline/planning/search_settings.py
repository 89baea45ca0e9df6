"""Search for settings of a training run that fit into a cluster's memory, and sort them by speed.

1. List the context-parallel sizes 1, 2, 4 and 8. A size must divide the number of GPUs of a node,
   and must not exceed the model's number of heads. 16 × size must divide the bucket's capacity.
2. For each size, list combinations of micro-batch, recomputation, sharding and replication. The
   batch of a combination must be within 15 % of the published batch or, for a small dataset, of the
   smaller batch that the trainer chooses.
3. Estimate memory (`estimate.memory`), and drop combinations that do not fit.
4. Keep the combinations of the smallest context-parallel size that fits.
5. Sort by estimated tokens/s (`estimate.seconds`). Combinations in which GPUs of several nodes
   divide one copy of the parameters come last, because they have the most traffic between nodes.
   This traffic was not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final, get_args

from pipeline.planning.choices import (
    LARGEST_SHARE,
    buckets_of_step,
    choose_buckets,
    choose_reshard,
    choose_shard,
)
from pipeline.planning.cluster import GPU_GIB, Cluster
from pipeline.planning.estimate import ROOM, Reshard, Setting, Shard, memory, seconds
from schemas.manifest import Manifest
from schemas.models import ESM2_MODELS, PUBLISHED_RUNS, Recompute, longest_of_our_attention
from schemas.text.phrases import plural

_CONTEXT_PARALLEL: Final = (1, 2, 4, 8)
_BUCKETS_PER_MICRO_BATCH: Final = (1, 2, 4, 8, 16)
_RECOMPUTE: Final[tuple[Recompute, ...]] = get_args(Recompute)
_RESHARD: Final[tuple[Reshard, ...]] = ("step", "layer")
BATCH_TOLERANCE: Final = 0.15
"""Largest difference between a batch and the wanted batch, as a share of the wanted batch."""
WORTH_NO_FLAGS: Final = 1.03
"""Smallest ratio of speeds at which a faster setting is preferred to the trainer's own choice. The
trainer's own choice needs fewer flags, so a small gain is not worth the flags."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """Settings of a training run, with the trainer's flags for them.

    buckets:    number of buckets in a micro-batch
    replicate:  number of copies of the parameters, if `shard` is "full"
    is_default: whether the trainer, given only --buckets-per-step, chooses the same settings
    """

    setting: Setting
    buckets: int
    replicate: int
    is_default: bool = False

    @property
    def tokens_per_second(self) -> float:
        """Estimated tokens per second, without padding, over all GPUs."""
        return self.setting.step_tokens / seconds(self.setting)

    @property
    def buckets_per_step(self) -> int:
        """Number of buckets in a step, over all ranks."""
        data_ranks = self.setting.ranks // self.setting.context_parallel
        return self.buckets * self.setting.micro_batches * data_ranks

    @property
    def gib(self) -> float:
        """Estimated peak memory of one GPU, in GiB."""
        return sum(memory(self.setting).values()) / 2**30

    @property
    def words(self) -> str:
        """Text that says what a GPU holds, and how a step is computed."""
        setting = self.setting
        held = {
            "none": "the whole model",
            "optimizer": "the whole model and a share of the optimizer state",
            "full": "a share of the model (FSDP2)",
        }[setting.shard if setting.ranks > 1 else "none"]
        graph = "captured in a CUDA graph" if setting.captured else "not captured in a CUDA graph"
        micro_batches = plural(setting.micro_batches, "micro-batch", "es")
        return (
            f"each GPU holds {held}; {micro_batches} of {plural(self.buckets, 'bucket')}, {graph}"
        )

    def flags(self) -> list[str]:
        """Return the flags of `thdpack train` for these settings, without most default values."""
        setting = self.setting
        flags = ["--buckets-per-step", str(self.buckets_per_step)]
        if not self.is_default:
            flags += ["--buckets-per-micro-batch", str(self.buckets)]
            flags += ["--shard", setting.shard] if setting.ranks > 1 else []
        if setting.shard == "full" and setting.ranks > 1:
            flags += ["--reshard", setting.reshard]
        if self.replicate > 1:
            flags += ["--replicate", str(self.replicate)]
        if setting.context_parallel > 1:
            flags += ["--context-parallel", str(setting.context_parallel)]
        if setting.recompute != "none":
            flags += ["--recompute", setting.recompute]
        return flags


def search_settings(
    manifest: Manifest, model: str, cluster: Cluster, *, fp8: bool
) -> list[Candidate]:
    """Return the settings that fit, beginning with the best.

    Args:
        manifest: manifest of a dataset whose train split is not empty.
        model: a key of ESM2_MODELS.
    Raises:
        ValueError: no setting fits into memory, or every batch is too far from the published one.
            The message names a remedy.
    """
    candidates = [
        candidate
        for size in _context_parallel_sizes(cluster, model, manifest.capacity)
        for candidate in _candidates(manifest, model, cluster, fp8, size)
    ]
    if not candidates:
        least = cluster.number * manifest.capacity
        raise ValueError(
            f"without context parallelism, a step on {plural(cluster.number, 'GPU')} has at least "
            f"{least:,} tokens (one bucket of {manifest.capacity:,} tokens per GPU), but the "
            f"published batch of {model} is {PUBLISHED_RUNS[model].tokens_per_step:,}: use fewer "
            "GPUs, or a dataset with a smaller --capacity"
        )
    room = GPU_GIB[cluster.gpu] * ROOM
    fitting = sorted(
        (candidate for candidate in candidates if candidate.gib <= room),
        key=lambda candidate: (
            candidate.setting.context_parallel,
            candidate.setting.shard == "full" and candidate.replicate != cluster.nodes,
            -candidate.tokens_per_second * (WORTH_NO_FLAGS if candidate.is_default else 1),
        ),
    )
    if not fitting:
        raise ValueError(_does_not_fit(candidates, cluster, model, room))
    smallest = fitting[0].setting.context_parallel
    return [candidate for candidate in fitting if candidate.setting.context_parallel == smallest]


def _context_parallel_sizes(cluster: Cluster, model: str, capacity: int) -> list[int]:
    most = min(cluster.gpus_per_node, ESM2_MODELS[model].heads)
    return [
        size
        for size in _CONTEXT_PARALLEL
        if size <= most and cluster.gpus_per_node % size == 0 and capacity % (16 * size) == 0
    ]


def _candidates(
    manifest: Manifest, model: str, cluster: Cluster, fp8: bool, context_parallel: int
) -> Iterator[Candidate]:
    """Yield settings of one context-parallel size. The batch of each setting is close to the
    published batch or, for a small dataset, to the smaller batch that the trainer chooses."""
    number = cluster.number
    available = GPU_GIB[cluster.gpu] * 2**30
    published = PUBLISHED_RUNS[model].tokens_per_step / manifest.capacity
    default = buckets_of_step(
        published,
        unit=number // context_parallel,
        limit=LARGEST_SHARE * manifest.splits["train"].buckets,
    )
    wanted = min(published, default)
    for buckets, recompute, (shard, reshard, replicate) in product(
        _BUCKETS_PER_MICRO_BATCH, _RECOMPUTE, _divisions(cluster, context_parallel)
    ):
        buckets_at_once = buckets * number // context_parallel
        micro_batches = max(1, round(wanted / buckets_at_once))
        if abs(micro_batches * buckets_at_once / wanted - 1) > BATCH_TOLERANCE:
            continue
        captured = (
            shard != "full"
            and recompute == "none"
            and manifest.max_seq_len <= longest_of_our_attention(ESM2_MODELS[model].head_size)
        )
        single = Setting.on(
            manifest,
            1,
            model=ESM2_MODELS[model],
            fp8=fp8,
            micro_batches=micro_batches * buckets,
            recompute=recompute,
            ranks=number,
            shard=shard,
            shards=number // replicate,
            context_parallel=context_parallel,
            reshard=reshard,
            captured=captured,
        )
        is_default = (
            recompute == "none"
            and context_parallel == replicate == 1
            and shard == (choose_shard(single, available=available) if number > 1 else "none")
            and buckets == choose_buckets(single, available=available)
            and (shard != "full" or reshard == choose_reshard(single, available=available))
        )
        yield Candidate(
            setting=single.merged(buckets),
            buckets=buckets,
            replicate=replicate,
            is_default=is_default,
        )


def _divisions(cluster: Cluster, context_parallel: int) -> Iterator[tuple[Shard, Reshard, int]]:
    """Yield combinations of values of --shard, --reshard and --replicate."""
    if cluster.number == 1:
        yield "none", "step", 1
        return
    if context_parallel == 1:
        yield "none", "step", 1
        yield "optimizer", "step", 1
    for reshard, replicate in product(_RESHARD, {1, cluster.nodes}):
        yield "full", reshard, replicate


def _does_not_fit(candidates: list[Candidate], cluster: Cluster, model: str, room: float) -> str:
    """Return a message with the smallest candidate's memory, its largest part, and a remedy."""
    least = min(candidates, key=lambda candidate: candidate.gib)
    part, size = max(memory(least.setting).items(), key=lambda item: item[1])
    remedy = (
        "use more GPUs, because they divide that part among themselves"
        if cluster.number == 1 or "Adam" in part or "parameters" in part
        else "use a dataset with a smaller --capacity, which needs less memory for that part"
    )
    return (
        f"{model} on {cluster.number} {cluster.gpu} needs at least {least.gib:.0f} GiB per GPU, "
        f"and {room:.0f} are available: {size / 2**30:.0f} GiB are for {part}; {remedy}"
    )
