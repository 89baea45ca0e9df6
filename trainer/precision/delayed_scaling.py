"""State of delayed scaling (precision fp8-delayed): scales, and histories of amax (largest absolute
values).

The other recipes of Transformer Engine have no state. tests/gpu/test_scaling_kept.py checks on a
GPU that validation does not change the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trainer.config import ComputeOptions
from trainer.precision.autocast import recipe


def scaling_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor of each scale and each history.

    The state exists from the first step on. With other recipes, nothing is yielded.
    """
    for name, module in model.named_modules():
        if next(module.parameters(recurse=False), None) is None:
            continue  # attention runs in bf16, and does not use its state
        for direction in ("scaling_fwd", "scaling_bwd"):
            state: Any = getattr(module, "fp8_meta", {}).get(direction)
            if hasattr(state, "amax_history"):
                yield f"{name}.{direction}.scale", state.scale
                yield f"{name}.{direction}.amax_history", state.amax_history


def prepare_scaling(model: nn.Module, options: ComputeOptions) -> None:
    """Create the state of delayed scaling, so that a checkpoint can be loaded into the state. If
    this is not called, the first step creates the state.
    """
    if options.precision != "fp8-delayed":
        return
    import transformer_engine.pytorch as te

    with te.autocast(enabled=True, recipe=recipe(options.precision)):
        layers: Any = model.layers
        for layer in layers:
            for module in layer.modules():
                if isinstance(module, te.Linear) and not layer.stays_bf16:
                    module.init_fp8_metadata(num_gemms=1)


@contextmanager
def preserve_scaling(model: nn.Module) -> Iterator[None]:
    """Restore scales and histories at the end of this context, so that a validation does not change
    them.

    Transformer Engine advances histories only if gradients are computed. However, its kernels
    record amax in the newest row of the history in any forward pass. If the state is created inside
    this context, the histories are set to zero at the end.
    """
    tensors = [tensor for _, tensor in scaling_tensors(model)]
    kept = [tensor.clone() for tensor in tensors]
    try:
        yield
    finally:
        if tensors:
            torch._foreach_copy_(tensors, kept)
        else:
            for name, tensor in scaling_tensors(model):
                if name.endswith("amax_history"):
                    tensor.zero_()
