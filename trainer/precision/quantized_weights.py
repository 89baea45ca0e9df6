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
    """Return the context in which a layer is built. Transformer Engine's modules remember it, for
    `quantize_parameters`.
    """
    if not (options.quantized_init and low):
        return nullcontext()
    import transformer_engine.pytorch as te

    context: AbstractContextManager[Any] = te.quantized_model_init(
        enabled=True, recipe=recipe(options.precision)
    )
    return context


def quantize_parameters(model: nn.Module) -> None:
    """Replace the weights of modules that were built for FP8 by FP8 weights of random values.

    All weights have to have memory on a GPU.
    """
    # With gradients disabled, the weights would lack the transposes that a backward pass
    # reads, and each forward pass would compute them.
    with torch.enable_grad():
        modules: Iterator[Any] = model.modules()
        for module in modules:
            if getattr(module, "primary_weights_in_fp8", False):
                module.reset_parameters(defer_init=False)
    for name, tensor in scaling_tensors(model):
        if name.endswith("amax_history"):
            # these are largest values of the random weights, which are replaced next
            tensor.zero_()


def is_quantized(parameter: Tensor) -> bool:
    """Return whether a parameter holds FP8. Its `quantize_` writes it; otherwise it behaves like a
    bf16 tensor.
    """
    return hasattr(parameter, "quantize_")
