"""Dtypes of weights and matrix products, and the autocast context of a forward pass."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from trainer.config import ComputeOptions
from trainer.precision.low_precision import is_low


def stored_dtype(options: ComputeOptions) -> torch.dtype:
    """Return the dtype of parameters between steps. FP8 parameters report bf16 as their dtype.

    If the dtype is not fp32, the optimizer keeps fp32 copies of the parameters (masters).
    """
    return (
        torch.bfloat16 if options.backend == "te" and options.precision != "fp32" else torch.float32
    )


def compute_dtype(options: ComputeOptions) -> torch.dtype:
    """Return the dtype of matrix products that are not in FP8 or FP4."""
    return torch.float32 if options.precision == "fp32" else torch.bfloat16


def autocast(
    options: ComputeOptions, device: torch.device, *, sharded: bool
) -> AbstractContextManager[Any]:
    """Return the context of a forward pass.

    Args:
        sharded: True if FSDP2 shards the parameters. FSDP2, not autocast, then casts parameters.
    """
    if is_low(options.precision):
        import transformer_engine.pytorch as te

        context: AbstractContextManager[Any] = te.autocast(
            enabled=True, recipe=recipe(options.precision)
        )
        return context
    if options.backend == "torch" and options.precision == "bf16" and not sharded:
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def backward_in_autocast(options: ComputeOptions) -> bool:
    """Return whether the backward pass must run inside `autocast` too.

    Transformer Engine recomputes each layer inside an autocast of its own. When an outermost
    autocast ends, it advances the histories of delayed scaling. Without an outer autocast, the
    histories would advance once per layer instead of once per micro-batch.
    """
    return is_low(options.precision) and options.recompute != "none"


def recipe(precision: str) -> Any:
    from transformer_engine.common import recipe as recipes

    return {
        "fp8-delayed": lambda: recipes.DelayedScaling(
            fp8_format=recipes.Format.HYBRID, amax_history_len=16, amax_compute_algo="max"
        ),
        "fp8-current": lambda: recipes.Float8CurrentScaling(fp8_format=recipes.Format.HYBRID),
        "fp8-block": lambda: recipes.Float8BlockScaling(),
        "mxfp8": lambda: recipes.MXFP8BlockScaling(),
        "nvfp4": lambda: recipes.NVFP4BlockScaling(),
    }[precision]()
