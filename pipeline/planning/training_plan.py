"""Before a run, what it will need and how long it will take, with the settings that are fastest among those that fit.

Time and memory are estimates (pipeline/planning/estimate.py); the dataset's own buckets say how much attention costs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Final, get_args

from pipeline.planning.estimate import ROOM, Reshard, Setting, memory, seconds
from pipeline.planning.throughput import RUNS
from pipeline.storage.read_manifest import read_manifest
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.models import (
    ESM2_MODELS,
    Recompute,
    check_length_multiple,
    longest_of_our_attention,
)

GPU_GIB: Final = {"H200": 139.8, "H100": 79.2}
"""Memory that torch can have."""
_NODE: Final = 8
_MERGED: Final = (1, 2, 4, 8, 16)
_RECOMPUTE: Final[tuple[Recompute, ...]] = get_args(Recompute)
_RESHARD: Final[tuple[Reshard, ...]] = ("step", "layer")
_BATCH: Final = 0.15
"""How far a batch may be from the published one."""
_SHORT: Final = 20_000
"""Steps of a run for which the presets' warm-up is too long."""
_SHOWN: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """GPUs of one kind."""

    number: int
    gpu: str

    @property
    def nodes(self) -> int:
        """As few as hold them, with at most eight each and equally many."""
        return next(
            nodes
            for nodes in range(-(-self.number // _NODE), self.number + 1)
            if self.number % nodes == 0
        )

    @property
    def of_a_node(self) -> int:
        return self.number // self.nodes

    @staticmethod
    def parse(text: str) -> Cluster:
        """From `8xH200`.

        Raises:
            ValueError: it is not that, or nobody has measured such a GPU.
        """
        found = re.fullmatch(r"([1-9][0-9]*)\s*[x×]\s*([A-Za-z0-9]+)", text)
        if not found:
            raise ValueError(f"--gpus is {text!r}, expected a number and a kind, such as 8xH200")
        number, gpu = int(found[1]), found[2].upper()
        if gpu not in GPU_GIB:
            raise ValueError(
                f"--gpus {text}: there are figures for {', '.join(GPU_GIB)}; none for {gpu}"
            )
        return Cluster(number=number, gpu=gpu)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One way to train, with the flags that ask for it. buckets: of a micro-batch."""

    setting: Setting
    buckets: int
    replicate: int

    @property
    def tokens_per_second(self) -> float:
        """Real tokens, over all GPUs."""
        return self.setting.step_tokens / seconds(self.setting)

    @property
    def gib(self) -> float:
        return sum(memory(self.setting).values()) / 2**30

    def flags(self) -> list[str]:
        setting = self.setting
        groups = setting.ranks // setting.context_parallel
        found = [
            "--buckets-per-step",
            str(self.buckets * setting.micro_batches * groups),
            "--buckets-per-micro-batch",
            str(self.buckets),
        ]
        if setting.ranks > 1:
            found += ["--reshard", setting.reshard]
        if self.replicate > 1:
            found += ["--replicate", str(self.replicate)]
        if setting.context_parallel > 1:
            found += ["--context-parallel", str(setting.context_parallel)]
        if setting.recompute != "none":
            found += ["--recompute", setting.recompute]
        return [*found, "--cuda-graph"] if setting.captured else found


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlan:
    """The fastest setting that fits, and the next ones."""

    model: str
    data: str
    cluster: Cluster
    precision: str
    tokens: int
    epoch_tokens: int
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    def hours(self, tokens: float) -> float:
        return tokens / self.best.tokens_per_second / 3600

    @property
    def command(self) -> str:
        cluster = self.cluster
        launcher = "python"
        if cluster.number > 1:
            nodes = (
                f"--nnodes {cluster.nodes} --rdzv-backend c10d --rdzv-endpoint NODE0:29500 "
                if cluster.nodes > 1
                else ""
            )
            launcher = f"torchrun {nodes}--nproc-per-node {cluster.of_a_node}"
        flags = [
            "--data",
            self.data,
            "--precision",
            self.precision,
            *self.best.flags(),
            "--steps",
            str(self.steps),
        ]
        if self.steps < _SHORT:
            flags += ["--warmup-steps", str(self.steps // 10)]
        return " ".join([launcher, "-m trainer.train", self.model, *flags])

    @property
    def steps(self) -> int:
        """Of the run."""
        return math.ceil(self.tokens / self.best.setting.step_tokens)

    def to_json(self) -> dict[str, Any]:
        best = self.best
        return {
            "model": self.model,
            "data": self.data,
            "gpus": asdict(self.cluster),
            "precision": self.precision,
            "command": self.command,
            "memory_bytes": memory(best.setting),
            "memory_gib": best.gib,
            "tokens_per_second": best.tokens_per_second,
            "tokens_per_second_per_gpu": best.tokens_per_second / self.cluster.number,
            "step_seconds": seconds(best.setting),
            "epoch": self._span(self.epoch_tokens),
            "run": self._span(self.tokens),
            "alternatives": [
                {
                    "flags": each.flags(),
                    "tokens_per_second": each.tokens_per_second,
                    "memory_gib": each.gib,
                }
                for each in self.candidates[1:]
            ],
        }

    def _span(self, tokens: int) -> dict[str, float]:
        hours = self.hours(tokens)
        return {
            "tokens": tokens,
            "steps": tokens / self.best.setting.step_tokens,
            "hours": hours,
            "gpu_hours": hours * self.cluster.number,
        }


def plan_training(data: str, model: str, gpus: str, *, precision: str, tokens: int) -> TrainingPlan:
    """Find the fastest setting.

    Args:
        tokens: of the whole run; 0: the published one's.
    Raises:
        ValueError: no such model, or GPUs nobody has measured, or nothing fits them; says what would.
        DatasetError: the dataset cannot be read, or has no tokens to train on.
    """
    if model not in ESM2_MODELS:
        raise ValueError(f"--model {model}: there are {', '.join(ESM2_MODELS)}")
    cluster = Cluster.parse(gpus)
    manifest = read_manifest(data)
    train = manifest.splits.get("train")
    if train is None or not train.buckets:
        raise DatasetError(f"{data}: its split train is empty: there is nothing to train on")
    _check(data, manifest, fp8=precision != "bf16")
    every = [
        each
        for cp in _context_parallel(cluster, model, manifest.capacity)
        for each in _candidates(manifest, model, cluster, precision != "bf16", cp)
    ]
    if not every:
        least = cluster.number * manifest.capacity
        raise ValueError(
            f"a step on {cluster.number} GPUs has at least {least:,} tokens, one bucket of {manifest.capacity:,} each, and the published batch of {model} is "
            f"{RUNS[model].tokens_per_step:,}: use fewer GPUs, or a dataset of smaller --capacity"
        )
    room = GPU_GIB[cluster.gpu] * ROOM
    copies = cluster.nodes  # on several nodes, one each: what crosses between them was not measured, and this way it is least
    fitting = sorted(
        (each for each in every if each.gib <= room),
        key=lambda each: (
            each.setting.context_parallel,
            each.replicate != copies,
            -each.tokens_per_second,
        ),
    )
    if not fitting:
        raise ValueError(_too_small(every, cluster, model, room))
    fewest = [
        each
        for each in fitting
        if each.setting.context_parallel == fitting[0].setting.context_parallel
    ]
    run = RUNS[model]
    return TrainingPlan(
        model=model,
        data=data,
        cluster=cluster,
        precision=precision,
        tokens=tokens or run.steps * run.tokens_per_step,
        epoch_tokens=train.tokens,
        candidates=tuple(fewest[:_SHOWN]),
    )


def _check(data: str, manifest: Manifest, *, fp8: bool) -> None:
    """Raises: ValueError, for what the trainer would refuse."""
    check_length_multiple(data, manifest.length_multiple)
    if fp8 and manifest.capacity % 16:
        raise ValueError(
            f"{data} has buckets of {manifest.capacity} tokens, FP8 needs a multiple of 16: build it with such a --capacity, or use --precision bf16"
        )


def _context_parallel(cluster: Cluster, model: str, capacity: int) -> list[int]:
    most = min(cluster.of_a_node, ESM2_MODELS[model].heads)
    return [
        size
        for size in (1, 2, 4, 8)
        if size <= most and cluster.of_a_node % size == 0 and capacity % (16 * size) == 0
    ]


def _candidates(
    manifest: Manifest, model: str, cluster: Cluster, fp8: bool, context_parallel: int
) -> Iterator[Candidate]:
    number = cluster.number
    wanted = RUNS[model].tokens_per_step / manifest.capacity
    for buckets, recompute, reshard, replicate in product(
        _MERGED, _RECOMPUTE, _RESHARD if number > 1 else _RESHARD[:1], {1, cluster.nodes}
    ):
        unit = buckets * number // context_parallel
        micro_batches = max(1, round(wanted / unit))
        if abs(micro_batches * unit / wanted - 1) > _BATCH:
            continue
        setting = Setting.on(
            manifest,
            buckets,
            model=ESM2_MODELS[model],
            fp8=fp8,
            micro_batches=micro_batches,
            recompute=recompute,
            ranks=number,
            shards=number // replicate,
            context_parallel=context_parallel,
            reshard=reshard,
            captured=number == 1
            and recompute == "none"
            and manifest.max_seq_len <= longest_of_our_attention(ESM2_MODELS[model].head_size),
        )
        yield Candidate(setting=setting, buckets=buckets, replicate=replicate)


def _too_small(every: list[Candidate], cluster: Cluster, model: str, room: float) -> str:
    least = min(every, key=lambda each: each.gib)
    part, size = max(memory(least.setting).items(), key=lambda item: item[1])
    remedy = (
        "more GPUs share it"
        if cluster.number == 1 or "Adam" in part or "parameters" in part
        else "a dataset with a smaller --capacity has less of it"
    )
    return (
        f"{model} needs at least {least.gib:.0f} GiB of each of {cluster.number} {cluster.gpu}, which have room for {room:.0f}: "
        f"{size / 2**30:.0f} of them are {part}; {remedy}"
    )
