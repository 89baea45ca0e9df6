"""Choose the batch (number of buckets in a step, over all ranks) and the number of steps.

The preset's batch is meant for large corpora and GPUs. On a small dataset, a step with this batch
could be several epochs. On a CPU, the step would take half an hour or more. In these two cases the
default batch is smaller. A batch that the user chooses is not reduced. A resumed run keeps its
batch.

The preset's number of steps is also meant for large corpora. The default number is smaller if the
preset's steps would be more than 100 epochs (with --init-from, more than FEW_EPOCHS). See
`pipeline.planning.choices.default_steps`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from pipeline.planning.choices import (
    LARGEST_SHARE,
    MOST_DEFAULT_EPOCHS,
    buckets_of_step,
    chosen_steps,
    default_steps,
)
from schemas.manifest import Manifest
from schemas.models import FEW_EPOCHS
from schemas.text.phrases import plural
from trainer.config import AUTO, DataOptions, TrainOptions
from trainer.distributed.topology import Topology

CPU_TOKENS: Final = 32_768
"""Maximum size of a default batch on a CPU, in tokens. A step of an 8M model then takes about half
a minute on two cores."""
_SHOWN: Final = 6
"""Maximum number of suggestions in an error message about the number of ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Batch of a run.

    data: data options, with `buckets_per_step` set.
    note: message if the preset's batch was reduced, if --tokens-per-step was rounded, or if a step
        is more than an epoch; "" otherwise.
    """

    data: DataOptions
    note: str = ""


def choose_batch(data: DataOptions, manifest: Manifest, topology: Topology) -> Batch:
    """Return the batch that the user chose. If the user chose none, return the preset's batch, or a
    smaller batch if the preset's is too large (see `pipeline.planning.choices.buckets_of_step`).

    Raises:
        ValueError: --buckets-per-step does not divide evenly among ranks and micro-batches, or
            --tokens-per-step is too small.
    """
    merged = 1 if data.buckets_per_micro_batch == AUTO else data.buckets_per_micro_batch
    unit = topology.data_ranks * merged
    if data.buckets_per_step:
        _check_divides(data, merged, topology)
        note = _many_epochs(data.buckets_per_step, manifest, "--buckets-per-step")
        return Batch(data=data, note=note)
    epoch = manifest.splits["train"].buckets
    limit = LARGEST_SHARE * epoch
    if topology.device.type == "cpu":
        limit = min(limit, CPU_TOKENS / manifest.capacity)
    asked = data.tokens_per_step / manifest.capacity
    buckets = buckets_of_step(asked, unit=unit, limit=math.inf)
    smaller = buckets_of_step(asked, unit=unit, limit=limit)
    if data.tokens_given or smaller == buckets:
        notes: tuple[str, ...] = ()
        if data.tokens_given:
            large = _many_epochs(buckets, manifest, "--tokens-per-step")
            notes = (_rounded(data, buckets, manifest.capacity), large)
        note = ". ".join(each for each in notes if each)
        return Batch(data=replace(data, buckets_per_step=buckets), note=note)
    tokens = smaller * manifest.capacity
    share = buckets / epoch
    too_much = (
        f"be {share:,.2f} epochs of this dataset" if share > LARGEST_SHARE else "be slow on a CPU"
    )
    return Batch(
        data=replace(data, buckets_per_step=smaller, tokens_per_step=tokens),
        note=(
            f"a step of the preset's batch ({data.tokens_per_step:,} tokens) would {too_much}: "
            f"using {plural(smaller, 'bucket')} ({tokens:,} tokens) a step; "
            "--tokens-per-step overrides"
        ),
    )


def choose_steps(options: TrainOptions, manifest: Manifest) -> tuple[TrainOptions, str]:
    """Return the options with the number of steps, and a reason for this number.

    If the user chose the number, the options are unchanged and the reason is "".

    Args:
        options: options of a run, with `buckets_per_step` set.
    Raises:
        ValueError: the warm-up is too long for the number of steps that --epochs gives.
    """
    data, optimizer = options.data, options.optimizer
    if optimizer.epochs:
        epoch, batch = manifest.splits["train"].buckets, data.buckets_per_step
        # rounded first, because 1.1 × 100 is 110.00000000000001
        found = max(1, math.ceil(round(optimizer.epochs * epoch / batch, 6)))
        reason = f"{chosen_steps(found, epoch=epoch, batch=batch)} (--epochs {optimizer.epochs:g})"
        optimizer = replace(optimizer, steps=found, steps_given=True, epochs=0.0)
        return replace(options, optimizer=optimizer), reason
    if optimizer.steps_given:
        return options, ""
    if data.reweight:
        found = optimizer.steps
        reason = (
            f"steps: {found:,}, as in the preset, because --reweight changes the length of an epoch"
        )
    else:
        epoch = manifest.splits["train"].buckets
        default = default_steps(
            optimizer.steps,
            epoch=epoch,
            batch=data.buckets_per_step,
            most_epochs=FEW_EPOCHS if options.output.init_from else MOST_DEFAULT_EPOCHS,
        )
        found, reason = default.steps, default.reason
    return replace(options, optimizer=replace(optimizer, steps=found, steps_given=True)), (
        f"{reason}; --steps overrides"
    )


def _many_epochs(buckets: int, manifest: Manifest, option: str) -> str:
    """Return a warning if a step that the user chose is more than an epoch; "" otherwise.

    Args:
        option: option that sets the number of buckets.
    """
    share = buckets / manifest.splits["train"].buckets
    if share <= 1:
        return ""
    return (
        f"warning: a step of {plural(buckets, 'bucket')} ({buckets * manifest.capacity:,} tokens) "
        f"is {share:,.2f} epochs of this dataset: use a smaller {option}, or omit it"
    )


def _rounded(data: DataOptions, buckets: int, capacity: int) -> str:
    """Return a note that --tokens-per-step is rounded; "" if no rounding is necessary.

    Raises:
        ValueError: --tokens-per-step is at most half of the smallest step.
    """
    tokens = buckets * capacity
    if 2 * data.tokens_per_step <= tokens:
        raise ValueError(
            f"--tokens-per-step is {data.tokens_per_step:,}, expected at least {tokens:,}: each "
            f"rank trains on whole buckets, and this dataset has buckets of {capacity:,} tokens. "
            "For smaller steps, build it with a smaller --capacity"
        )
    if tokens == data.tokens_per_step:
        return ""
    return (
        f"--tokens-per-step {data.tokens_per_step:,} is rounded to {tokens:,}: a step is "
        f"{buckets:,} × {capacity:,} tokens, because each rank trains on whole buckets"
    )


def _check_divides(data: DataOptions, merged: int, topology: Topology) -> None:
    """Check that each rank gets the same number of whole micro-batches in a step.

    Args:
        merged: number of buckets in a micro-batch, the part of a step that a rank computes at once.
    Raises:
        ValueError: the buckets of a step do not divide evenly.
    """
    if data.buckets_per_step % (topology.data_ranks * merged):
        shared = topology.slices.ranks
        ranks = plural(topology.data_ranks, "rank" if shared == 1 else "group")
        those = ranks if shared == 1 else f"{ranks} of {shared} ranks"
        raise ValueError(
            f"{plural(data.buckets_per_step, 'bucket')} per step do"
            f"{'es' if data.buckets_per_step == 1 else ''} not divide among {those} × "
            f"{plural(merged, 'bucket')} per micro-batch: "
            f"{_ranks_that_work(data.buckets_per_step / merged, topology)}change "
            "--buckets-per-micro-batch or, for a new run, --buckets-per-step"
        )


def _ranks_that_work(micro_batches: float, topology: Topology) -> str:
    """Return advice such as "use 1, 2 or 4 ranks, or "; "" if no number of ranks works. If many
    numbers work, the advice names those closest to the present number of ranks.

    Args:
        micro_batches: buckets of a step, over all ranks, divided by the buckets of a micro-batch.
    """
    if not micro_batches.is_integer():
        return ""
    whole, shared = int(micro_batches), topology.slices.ranks
    small = [number for number in range(1, math.isqrt(whole) + 1) if whole % number == 0]
    groups = {*small, *(whole // number for number in small)}
    closest = sorted(groups, key=lambda number: abs(number - topology.data_ranks))[:_SHOWN]
    *others, last = [f"{number * shared:,}" for number in sorted(closest)]
    words = f"{', '.join(others)} or {last}" if others else last
    return f"use {words} rank{'' if words == '1' else 's'}, or "
