"""`thdpack plan`: find the fastest settings of a training run that fit into the GPUs' memory.

A fitted formula (`estimate.py`) estimates time and memory from the attention cost of the dataset's
buckets. Estimates hold for backend te (Transformer Engine) on the GPUs of `cluster.GPU_GIB`.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pipeline.planning.choices import default_steps
from pipeline.planning.cluster import MEASURED, Cluster
from pipeline.planning.estimate import memory, seconds
from pipeline.planning.mixture import Part, datasets_of, mixed, parts_of
from pipeline.planning.search_settings import BATCH_TOLERANCE, Candidate, search_settings
from pipeline.storage.read_manifest import read_manifest
from pipeline.storage.urls import is_url
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.models import ESM2_MODELS, PUBLISHED_RUNS, check_length_multiple, preset_hint

CACHE: Final = "/tmp/thdpack-cache"
"""Placeholder for --cache-dir in the command, if the dataset is remote. The user replaces it."""
FIRST_NODE: Final = "NODE0"
"""Placeholder for the first node's name in the command, if there are several nodes."""
TORCHRUN_SECONDS: Final = 30
"""Seconds after a signal at which torchrun kills its ranks, without --shutdown-timeout."""
WRITE_BYTES_PER_SECOND: Final = 10**9
"""Assumed speed at which a checkpoint is written, in bytes per second, over all ranks."""
_CHECKPOINT_BYTES: Final = 12
"""Bytes of a checkpoint for each parameter: float32 weights and two moments of AdamW."""
_TIMEOUT_UNIT: Final = 30
"""A --shutdown-timeout is rounded up to a multiple of this number of seconds."""
_SHOWN: Final = 5
_TINY: Final = "esm2-tiny"
"""Preset of the trainer that is not one of the published models."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlan:
    """Plan of a training run, with the settings that fit into memory.

    tokens:       number of tokens of the whole run
    steps:        number of steps of the whole run
    why_steps:    reason for the number of steps; "" if the user chose the number of tokens
    data:         datasets as in --data of the trainer: one, or several as DATASET=WEIGHT
    parts:        each dataset, with its share of the buckets
    epoch_tokens: number of tokens of one epoch. The epoch of a mixture ends when one of the
                  datasets is about to repeat.
    candidates:   settings in order, beginning with the best
    """

    model: str
    data: tuple[str, ...]
    parts: tuple[Part, ...]
    cluster: Cluster
    precision: str
    tokens: int
    steps: int
    why_steps: str
    epoch_tokens: int
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    @property
    def has_smaller_batch(self) -> bool:
        """True if a step is smaller than the published run's, because the dataset is small."""
        setting = self.best.setting
        padded = setting.step_tokens * setting.tokens / setting.real_tokens
        return padded < (1 - BATCH_TOLERANCE) * PUBLISHED_RUNS[self.model].tokens_per_step

    @property
    def buckets(self) -> float:
        """Expected number of buckets of the whole run."""
        return self.tokens / sum(part.tokens_in(1) for part in self.parts)

    @property
    def is_remote(self) -> bool:
        """True if a dataset is in a store, so that the run has a cache."""
        return any(is_url(part.url) for part in self.parts)

    def hours(self, tokens: float) -> float:
        """Return the time in hours that training on `tokens` tokens takes."""
        return tokens / self.best.tokens_per_second / 3600

    @property
    def stop_seconds(self) -> float:
        """Longest time in seconds from a signal to the end of the run: two steps and a checkpoint.

        The time of the checkpoint assumes WRITE_BYTES_PER_SECOND.
        """
        size = _CHECKPOINT_BYTES * ESM2_MODELS[self.model].parameters
        return 2 * seconds(self.best.setting) + size / WRITE_BYTES_PER_SECOND

    @property
    def shutdown_timeout(self) -> int | None:
        """Seconds for torchrun's --shutdown-timeout; None if the command does not need it."""
        if self.cluster.number == 1 or self.stop_seconds <= TORCHRUN_SECONDS:
            return None
        return _TIMEOUT_UNIT * math.ceil(self.stop_seconds / _TIMEOUT_UNIT)

    @property
    def command(self) -> str:
        """The command that starts the run."""
        flags = [word for text in self.data for word in ("--data", text)]
        flags += ["--out", f"runs/{self.model}", "--precision", self.precision]
        if self.is_remote:
            flags += ["--cache-dir", CACHE]
        flags += [*self.best.flags(), "--steps", str(self.steps)]
        return f"{self._launcher} train {self.model} {shlex.join(flags)}"

    @property
    def _launcher(self) -> str:
        cluster = self.cluster
        if cluster.number == 1:
            return "thdpack"
        rendezvous = f"--rdzv-backend c10d --rdzv-endpoint {FIRST_NODE}:29500"
        nodes = f"--nnodes {cluster.nodes} {rendezvous} " if cluster.nodes > 1 else ""
        timeout = self.shutdown_timeout
        wait = f"--shutdown-timeout {timeout} " if timeout else ""
        return f"torchrun {nodes}--nproc-per-node {cluster.gpus_per_node} {wait}-m thdpack"

    def to_json(self) -> dict[str, Any]:
        """Return the plan as `thdpack plan --json` prints it."""
        best = self.best
        return {
            "model": self.model,
            "datasets": [
                {
                    "data": part.url,
                    "share": float(part.share),
                    "epoch_tokens": part.tokens,
                    "run_tokens": round(part.tokens_in(self.buckets)),
                    "run_epochs": part.epochs_in(self.buckets),
                }
                for part in self.parts
            ],
            "gpus": asdict(self.cluster),
            "precision": self.precision,
            "command": self.command,
            "settings": {
                "shard": best.setting.shard,
                "buckets_per_micro_batch": best.buckets,
                "micro_batches": best.setting.micro_batches,
                "cuda_graph": best.setting.captured,
            },
            "memory_bytes": memory(best.setting),
            "memory_gib": best.gib,
            "times_of": MEASURED,
            "tokens_per_second": best.tokens_per_second,
            "tokens_per_second_per_gpu": best.tokens_per_second / self.cluster.number,
            "step_seconds": seconds(best.setting),
            "stop_seconds": self.stop_seconds,
            "shutdown_timeout": self.shutdown_timeout,
            "epoch": self._cost(self.epoch_tokens, self.epoch_tokens / best.setting.step_tokens),
            "run": self._cost(self.tokens, self.steps),
            "alternatives": [
                {
                    "flags": candidate.flags(),
                    "tokens_per_second": candidate.tokens_per_second,
                    "memory_gib": candidate.gib,
                }
                for candidate in self.candidates[1:]
            ],
        }

    def _cost(self, tokens: int, steps: float) -> dict[str, float]:
        hours = self.hours(tokens)
        return {
            "tokens": tokens,
            "steps": steps,
            "hours": hours,
            "gpu_hours": hours * self.cluster.number,
        }


def plan_training(
    data: Sequence[str], model: str, gpus: str, *, precision: str, tokens: int
) -> TrainingPlan:
    """Plan a training run: find the fastest settings that fit.

    Args:
        data: path or URL of the dataset; for a mixture, several texts of the form DATASET=WEIGHT.
        gpus: number and kind of GPUs, such as 8xH200; see `Cluster.parse`.
        tokens: number of tokens of the whole run. 0 means as many as in a run of the trainer
            without --steps.
    Raises:
        ValueError: the model or kind of GPU is unknown, the trainer would refuse the datasets or
            their weights, or no setting fits. The message names a remedy.
        DatasetError: the dataset cannot be read, or its train split is empty.
    """
    if model == _TINY:
        flags = [word for text in data for word in ("--data", text)]
        raise ValueError(
            f"--model {model} is for trying the trainer on a CPU and needs no plan: a run takes a "
            f"minute or two. Run `thdpack train {model} {shlex.join(flags)}`. There are plans for "
            f"{', '.join(ESM2_MODELS)}"
        )
    if model not in ESM2_MODELS:
        raise ValueError(f"--model {model} is unknown: {preset_hint(model, ESM2_MODELS)}")
    cluster = Cluster.parse(gpus)
    fp8 = precision != "bf16"
    datasets = datasets_of(data)
    manifests = []
    for url in datasets:
        manifests.append(read_manifest(url))
        _check_dataset(url, manifests[-1], fp8=fp8)
    manifest = mixed(manifests, list(datasets.values()), list(datasets))
    train = manifest.splits["train"]
    candidates = search_settings(manifest, model, cluster, fp8=fp8)
    best = candidates[0]
    default = default_steps(
        PUBLISHED_RUNS[model].steps, epoch=train.buckets, batch=best.buckets_per_step
    )
    step_tokens = best.setting.step_tokens
    return TrainingPlan(
        model=model,
        data=tuple(data),
        parts=tuple(parts_of(datasets, manifests)),
        cluster=cluster,
        precision=precision,
        tokens=tokens or round(default.steps * step_tokens),
        steps=math.ceil(tokens / step_tokens) if tokens else default.steps,
        why_steps="" if tokens else default.reason,
        epoch_tokens=train.tokens,
        candidates=tuple(candidates[:_SHOWN]),
    )


def _check_dataset(data: str, manifest: Manifest, *, fp8: bool) -> None:
    """Check that the trainer can use a dataset.

    Raises:
        ValueError: the sequences are padded, or FP8 cannot use buckets of this capacity.
        DatasetError: the train split is empty.
    """
    train = manifest.splits.get("train")
    if train is None or not train.buckets:
        raise DatasetError(f"{data}: its train split is empty: there is nothing to train on")
    check_length_multiple(data, manifest.length_multiple)
    if fp8 and manifest.capacity % 16:
        raise ValueError(
            f"{data} has buckets of {manifest.capacity} tokens, and FP8 needs a multiple of 16: "
            "build it with such a --capacity, or use --precision bf16"
        )
