"""Weights that are stored in FP8 only (`--quantized-init`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from trainer.config import ComputeOptions
from trainer.precision.autocast import recipe
from trainer.precision.delayed_scaling import scaling_tensors


def parameters(options: ComputeOptions, *, low: bool) -> AbstractContextManager[Any]:
    """Return the context in which to build a layer. With --quantized-init and a low precision, this
    context marks modules of Transformer Engine for `quantize_parameters`.

    Args:
        low: True if the layer's matrix products run in the low precision.
    """
    if not (options.quantized_init and low):
        return nullcontext()
    import transformer_engine.pytorch as te

    context: AbstractContextManager[Any] = te.quantized_model_init(
        enabled=True, recipe=recipe(options.precision)
    )
    return context


def quantize_parameters(model: nn.Module) -> None:
    """Give random FP8 weights to the modules that the context of `parameters` has marked.

    All weights must be allocated on a GPU.
    """
    # With gradients disabled, Transformer Engine would not store the transposed weights that the
    # backward pass reads. Each forward pass would then compute the transposed weights.
    with torch.enable_grad():
        modules: Iterator[Any] = model.modules()
        for module in modules:
            if getattr(module, "primary_weights_in_fp8", False):
                module.reset_parameters(defer_init=False)
    for name, tensor in scaling_tensors(model):
        if name.endswith("amax_history"):
            # The history describes the random weights, which the caller replaces next.
            tensor.zero_()


def is_quantized(parameter: Tensor) -> bool:
    """Return whether a parameter is stored in FP8. Such a parameter has a method `quantize_`, which
    sets the values. In all other operations the parameter behaves like a bf16 tensor.
    """
    return hasattr(parameter, "quantize_")
