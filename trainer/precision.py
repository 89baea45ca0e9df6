"""In which numbers a run computes: dtypes, Transformer Engine's FP8 recipes, and their scaling state as plain tensors.

Weights, gradients' norms, Adam's state and the loss are fp32 whatever is chosen. Backend te holds weights in bf16 and their fp32
masters in the optimizer, which costs no cast a step; backend torch holds fp32 and casts where it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from trainer.config import ComputeOptions


def resolve(options: ComputeOptions, device: torch.device) -> ComputeOptions:
    """`auto` replaced by what this machine has.

    Raises:
        ValueError: options that do not go together, or not on this machine; says what does.
    """
    on_gpu = device.type == "cuda"
    if options.backend == "auto":
        options = replace(options, backend="te" if on_gpu and find_spec("transformer_engine") else "torch")
    if options.precision == "auto":
        options = replace(options, precision="bf16" if on_gpu else "fp32")
    if options.backend == "te" and not (on_gpu and find_spec("transformer_engine")):
        raise ValueError("--backend te needs an NVIDIA GPU and the extra gpu (pip install 'thdpack[gpu]'); --backend torch runs anywhere")
    if options.precision.startswith("fp8") and options.backend != "te":
        raise ValueError(f"--precision {options.precision} needs --backend te")
    if options.precision.startswith("fp8") and torch.cuda.get_device_capability(device) < (8, 9):
        raise ValueError(f"--precision {options.precision} needs a GPU of the Ada, Hopper or a later generation; use bf16")
    if options.compile and options.backend == "te":
        raise ValueError("--compile is for --backend torch: Transformer Engine's layers are fused already")
    return options


def stored_dtype(options: ComputeOptions) -> torch.dtype:
    """Of parameters between steps. If it is not fp32, the optimizer keeps fp32 masters."""
    return torch.bfloat16 if options.backend == "te" and options.precision != "fp32" else torch.float32


def compute_dtype(options: ComputeOptions) -> torch.dtype:
    """Of matrix products that are not FP8."""
    return torch.float32 if options.precision == "fp32" else torch.bfloat16


def autocast(options: ComputeOptions, device: torch.device, *, sharded: bool) -> AbstractContextManager[Any]:
    """What a forward pass runs in. Under FSDP2 (`sharded`), its own policy casts fp32 parameters."""
    if options.precision.startswith("fp8"):
        import transformer_engine.pytorch as te

        return te.autocast(enabled=True, recipe=_recipe(options.precision))
    if options.backend == "torch" and options.precision == "bf16" and not sharded:
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def _recipe(precision: str) -> Any:
    from transformer_engine.common import recipe

    return {
        "fp8-delayed": lambda: recipe.DelayedScaling(fp8_format=recipe.Format.HYBRID, amax_history_len=16, amax_compute_algo="max"),
        "fp8-current": lambda: recipe.Float8CurrentScaling(fp8_format=recipe.Format.HYBRID),
        "fp8-block": lambda: recipe.Float8BlockScaling(),
    }[precision]()


def scaling_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Delayed scaling's state, by name: scales and histories of largest values, there from the first step on. The other recipes have none."""
    for name, module in model.named_modules():
        for direction in ("scaling_fwd", "scaling_bwd"):
            state = getattr(module, "fp8_meta", {}).get(direction)
            if hasattr(state, "amax_history"):
                yield f"{name}.{direction}.scale", state.scale
                yield f"{name}.{direction}.amax_history", state.amax_history


def prepare_scaling(model: nn.Module, options: ComputeOptions) -> None:
    """Make delayed scaling's state, which otherwise comes with the first step, so that a checkpoint's can be written into it."""
    if options.precision != "fp8-delayed":
        return
    import transformer_engine.pytorch as te

    with te.autocast(enabled=True, recipe=_recipe(options.precision)):
        for module in model.modules():
            if isinstance(module, te.Linear):
                module.init_fp8_metadata(num_gemms=1)
