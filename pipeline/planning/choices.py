"""Choose the values of training options that are `auto`. The trainer and `thdpack plan` both use
this module."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from pipeline.planning.estimate import ROOM, Reshard, Setting, Shard, memory, seconds

LARGEST_SHARE: Final = 0.1
"""Largest batch that the trainer chooses by itself, as a share of an epoch."""
MOST_DEFAULT_EPOCHS: Final = 100
"""Number of epochs of the longest run that the trainer chooses by itself. With --init-from, the
trainer uses schemas.models.FEW_EPOCHS instead."""
LARGEST_GATHERED: Final = 0.25
"""Largest share of a GPU's memory that gathered parameters and gradients may take under `--reshard
step`."""
MOST_BUCKETS: Final = 16
"""Largest number of buckets that are merged into a micro-batch (the part of a step that a rank
computes in one pass)."""
GAIN: Final = 0.02
"""Smallest gain in time that is worth the memory of a larger micro-batch."""
ROOM_OF_MERGED: Final = 0.8
"""Largest share of a GPU's memory that a run with merged buckets may use. A run with one bucket per
micro-batch may use the share ROOM."""


def buckets_of_step(published: float, *, unit: int, limit: float) -> int:
    """Return the number of buckets in a step: the published batch, or fewer for a small dataset.

    For a small dataset, the number is `unit` times a power of two. If the number is at least
    2 × `unit`, a run can later be resumed on twice its number of ranks.

    Args:
        published: batch of the published run, in buckets.
        unit: number of buckets in the smallest step, which is one micro-batch on each rank.
        limit: largest batch, in buckets. One unit is allowed even if it exceeds the limit.
    """
    buckets = max(1, round(published / unit)) * unit
    if buckets <= limit:
        return buckets
    smaller = unit
    while 2 * smaller <= limit:
        smaller *= 2
    return min(buckets, smaller)


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultSteps:
    """Number of steps of a run without `--steps`, and a sentence that says why."""

    steps: int
    reason: str


def default_steps(
    preset: int, *, epoch: int, batch: int, most_epochs: int = MOST_DEFAULT_EPOCHS
) -> DefaultSteps:
    """Choose the number of steps: the preset's number, limited to `most_epochs` epochs.

    The number is at least 1.

    Args:
        preset: number of steps of the preset.
        epoch: number of buckets in an epoch.
        batch: number of buckets in a step.
    """
    steps = min(preset, math.ceil(most_epochs * epoch / batch))
    chosen = chosen_steps(steps, epoch=epoch, batch=batch)
    others = _epochs(preset * batch / epoch)
    reason = (
        f"{chosen}; the preset's {preset:,} would be {others}"
        if steps < preset
        else f"{chosen}, as in the preset"
    )
    return DefaultSteps(steps=steps, reason=reason)


def chosen_steps(steps: int, *, epoch: int, batch: int) -> str:
    """Return a sentence with a number of steps, and the number of epochs that it is.

    Args:
        epoch, batch: see `default_steps`.
    """
    return f"steps: {steps:,}, which is {_epochs(steps * batch / epoch)} of the data"


def _epochs(epochs: float) -> str:
    """Return a number of epochs as text, with two significant digits below 10."""
    number = f"{epochs:,.0f}" if epochs >= 9.5 else f"{epochs:.2g}"
    return f"{number} epoch{'' if number == '1' else 's'}"


def choose_shard(setting: Setting, *, available: float) -> Shard:
    """Resolve `--shard auto`: return the first of `none` and `optimizer` that fits, else `full`.

    Args:
        available: memory of the smallest GPU, in bytes.
    """
    shards: tuple[Shard, ...] = ("none", "optimizer")
    for shard in shards:
        if _fits(replace(setting, shard=shard), ROOM * available):
            return shard
    return "full"


def choose_reshard(setting: Setting, *, available: float) -> Reshard:
    """Resolve `--reshard auto`.

    Return `step` if the run then fits into memory, and its gathered parameters and gradients need
    at most a quarter of the memory. Otherwise return `layer`.
    """
    held = replace(setting, reshard="step")
    gathered = memory(held)["gathered parameters and gradients"]
    fits = gathered <= LARGEST_GATHERED * available and _fits(held, ROOM * available)
    return "step" if fits else "layer"


def choose_buckets(setting: Setting, *, available: float) -> int:
    """Resolve `--buckets-per-micro-batch auto`: return the smallest number of buckets with which a
    step takes at most 2 % longer than the fastest step.

    The number must divide the number of buckets that a rank has in a step, and the micro-batch must
    fit into memory.

    Args:
        setting: setting with one bucket per micro-batch.
    """
    numbers = [
        number
        for number in range(1, MOST_BUCKETS + 1)
        if setting.micro_batches % number == 0
        and (number == 1 or _fits(setting.merged(number), ROOM_OF_MERGED * available))
    ]
    times = {number: seconds(setting.merged(number)) for number in numbers}
    fastest = min(times.values())
    return min(number for number, time in times.items() if time <= (1 + GAIN) * fastest)


def _fits(setting: Setting, room: float) -> bool:
    return sum(memory(setting).values()) <= room
