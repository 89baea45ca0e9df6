"""Refuse a run on a CPU that needs more memory than the machine has. Otherwise, the kernel would
kill the run in its first step, without a message."""

from __future__ import annotations

import os
from typing import Final

from pipeline.planning.estimate import Setting, memory

_ACTIVATIONS: Final = {"fp32": 2.3, "bf16": 1.8}
"""Factors by which backend torch on a CPU needs more memory for activations than the estimate says,
which was fitted to backend te on GPUs. The factors are slightly less than measured: with buckets of
16,384 tokens, `thdpack train` took 3.0 GiB (esm2-8m) and 9.0 GiB (esm2-35m) in fp32, and 2.2 GiB
(esm2-8m) in bf16, of which 0.3 GiB are Python and torch."""


def check_cpu_memory(setting: Setting, *, precision: str, ranks: int, available: int) -> float:
    """Refuse a run whose ranks on this machine need more than its memory. Return the least number
    of bytes that they need.

    Args:
        ranks: number of ranks on this machine.
        available: memory of this machine in bytes.
    Raises:
        ValueError: the memory is too small. The message says what to change.
    """
    parts = memory(setting)
    parts["activations"] *= _ACTIVATIONS["fp32" if precision == "fp32" else "bf16"]
    needed = ranks * sum(parts.values())
    if needed <= available:
        return needed
    constant = ranks * (sum(parts.values()) - parts["activations"])
    remedies = ["a smaller model such as esm2-8m"]
    if constant <= available:  # fewer activations may help
        remedies += ["--recompute full"] * (setting.recompute != "full")
        remedies.append("a dataset built with a smaller --capacity")
    of_ranks = f" on {ranks} ranks" if ranks > 1 else ""
    raise ValueError(
        f"torch found no GPU, and on the CPU this run{of_ranks} needs at least "
        f"{needed / 2**30:,.0f} GiB of memory, but this machine has {available / 2**30:,.0f} GiB: "
        f"use a machine with a GPU (`thdpack plan` shows which), or {', or '.join(remedies)}"
    )


def ranks_on_this_machine() -> int:
    """Return the number of ranks that torchrun started on this machine; 1 without torchrun."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
