"""Choose the buckets of a step, over all ranks.

The preset's batch suits large corpora and GPUs. On a small dataset one such step would be several
epochs, and on a CPU it would take an hour. So the batch is smaller there, unless the user names
one. A run keeps its batch when it resumes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from schemas.manifest import Manifest
from trainer.config import DataOptions
from trainer.distributed.topology import Topology

LARGEST_SHARE: Final = 0.1
"""Largest share of an epoch in a step whose batch the user did not name."""
CPU_TOKENS: Final = 32_768
"""Most tokens of a step on a CPU whose batch the user did not name. An 8M model takes about half
a minute for them on two cores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Data options with the batch in buckets, and why it is not the preset's; "" if it is."""

    data: DataOptions
    note: str = ""


def choose_batch(data: DataOptions, manifest: Manifest, topology: Topology) -> Batch:
    """Return the batch that the user named, or the preset's, or a smaller one.

    A smaller batch is a power of two times the buckets that all ranks read at a time, so that it
    divides among other numbers of ranks, too.

    Raises:
        ValueError: --buckets-per-step does not divide among the ranks.
    """
    unit = topology.data_ranks * data.buckets_per_micro_batch
    if data.buckets_per_step:
        _check_divides(data, unit, topology)
        return Batch(data=data)
    buckets = max(1, round(data.tokens_per_step / manifest.capacity / unit)) * unit
    epoch = manifest.splits["train"].buckets
    limit = LARGEST_SHARE * epoch
    on_cpu = topology.device.type == "cpu"
    if on_cpu:
        limit = min(limit, CPU_TOKENS / manifest.capacity)
    smaller = unit
    while 2 * smaller <= limit:
        smaller *= 2
    if data.tokens_given or buckets <= limit or smaller >= buckets:
        return Batch(data=replace(data, buckets_per_step=buckets))
    tokens = smaller * manifest.capacity
    share = buckets / epoch
    too_much = (
        f"be {share:,.2f} epochs of this dataset" if share > LARGEST_SHARE else "take a CPU long"
    )
    return Batch(
        data=replace(data, buckets_per_step=smaller, tokens_per_step=tokens),
        note=(
            f"a step of the preset's batch ({data.tokens_per_step:,} tokens) would {too_much}: "
            f"using {smaller} buckets ({tokens:,} tokens) a step; --tokens-per-step overrides"
        ),
    )


def _check_divides(data: DataOptions, unit: int, topology: Topology) -> None:
    """Check that the buckets of a step divide among the ranks.

    Raises:
        ValueError: they do not.
    """
    if data.buckets_per_step % unit:
        those = (
            f"{topology.data_ranks} ranks"
            if topology.slices.ranks == 1
            else f"{topology.data_ranks} groups of {topology.slices.ranks} ranks"
        )
        raise ValueError(
            f"{data.buckets_per_step} buckets per step do not divide among {those} × "
            f"{data.buckets_per_micro_batch} buckets per micro-batch: "
            "change the number of ranks, --buckets-per-micro-batch or, for a new run, "
            "--buckets-per-step"
        )
