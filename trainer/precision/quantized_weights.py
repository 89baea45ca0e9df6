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
    """What a layer is made in. Transformer Engine's modules remember it, for `quantize_parameters`."""
    if not (options.quantized_init and low):
        return nullcontext()
    import transformer_engine.pytorch as te

    context: AbstractContextManager[Any] = te.quantized_model_init(
        enabled=True, recipe=recipe(options.precision)
    )
    return context


def quantize_parameters(model: nn.Module) -> None:
    """Replace the weights of modules that were made for FP8 weights by such, of random values. All have memory on a GPU already."""
    with torch.enable_grad():  # without, they would lack the transposes that a backward pass reads, and forward passes would make them each time
        modules: Iterator[Any] = model.modules()
        for module in modules:
            if getattr(module, "primary_weights_in_fp8", False):
                module.reset_parameters(defer_init=False)
    for name, tensor in scaling_tensors(model):
        if name.endswith("amax_history"):
            tensor.zero_()  # of those random values, which are about to be replaced


def is_quantized(parameter: Tensor) -> bool:
    """Whether it holds FP8, to be written by its `quantize_`; it passes for a bf16 tensor in everything else."""
    return hasattr(parameter, "quantize_")
