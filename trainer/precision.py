"""In which numbers a run computes: dtypes, Transformer Engine's recipes of 8 and 4 bits, and their scaling state as plain tensors.

Weights, gradients' norms, Adam's state and the loss are fp32 whatever is chosen. Backend te holds weights in bf16 (with --quantized-init, in
FP8) and their fp32 masters in the optimizer; backend torch holds fp32 and casts where it computes.

A precision is called low if the layers' matrix products run in 8 or 4 bits. Everything else (attention, norms, the head) is bf16 then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final

import torch
from torch import Tensor, nn

from schemas.models import ModelOptions
from trainer.config import ComputeOptions

Capability = tuple[int, int]
"""CUDA's number of a generation of GPUs: 8.0 Ampere, 8.9 Ada, 9.0 Hopper, 10.0 and above Blackwell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Low:
    """What a low precision needs.

    first, end: capabilities, from the first to below the end, if there is one.
    available: Transformer Engine's function that knows what else, such as a version of CUDA.
    multiple: what matrices' sizes are multiples of.
    """

    first: Capability
    available: str
    end: Capability | None = None
    multiple: int = 16
    fp8: bool = True

    def runs_on(self, capability: Capability | None) -> bool:
        return (
            capability is not None
            and capability >= self.first
            and (self.end is None or capability < self.end)
        )


_LOW: Final[Mapping[str, _Low]] = {
    "fp8-delayed": _Low(first=(8, 9), available="is_fp8_available"),
    "fp8-current": _Low(first=(8, 9), available="is_fp8_available"),
    "fp8-block": _Low(first=(9, 0), available="is_fp8_block_scaling_available"),
    # not on 12.x: Transformer Engine has not all layouts of the product there
    "mxfp8": _Low(first=(10, 0), end=(12, 0), available="is_mxfp8_available", multiple=32),
    # blocks are of 16, but rows of 4-bit numbers have to be whole 16 bytes
    "nvfp4": _Low(first=(10, 0), available="is_nvfp4_available", multiple=32, fp8=False),
}
_GENERATIONS: Final = (
    ((10, 0), "Blackwell"),
    ((9, 0), "Hopper"),
    ((8, 9), "Ada"),
    ((8, 0), "Ampere"),
)


def is_low(precision: str) -> bool:
    """Whether matrix products run in 8 or 4 bits, through a recipe of Transformer Engine."""
    return precision in _LOW


def resolve(options: ComputeOptions, device: torch.device) -> ComputeOptions:
    """`auto` replaced by what this machine has.

    Raises:
        ValueError: options that do not go together, or not on this machine; says what does.
    """
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    options = resolved(options, capability, has_te=find_spec("transformer_engine") is not None)
    if is_low(options.precision):
        import transformer_engine.pytorch as te

        available, reason = getattr(te, _LOW[options.precision].available)(return_reason=True)
        if not available:
            raise ValueError(
                f"--precision {options.precision} cannot run here: {reason} Use --precision bf16"
            )
    return options


def resolved(
    options: ComputeOptions, capability: Capability | None, *, has_te: bool
) -> ComputeOptions:
    """`auto` replaced by what a machine has whose GPU is of this capability (None: it has none), with Transformer Engine or without.

    Raises:
        ValueError: options that do not go together, or not on such a machine; says what does.
    """
    on_gpu, low = capability is not None, is_low(options.precision)
    if low and options.backend == "torch":
        raise ValueError(f"--precision {options.precision} needs --backend te")
    if low:
        _check_machine(options.precision, capability)
    if options.backend == "auto":
        options = replace(options, backend="te" if low or (on_gpu and has_te) else "torch")
    if options.precision == "auto":
        options = replace(options, precision="bf16" if on_gpu else "fp32")
    if options.backend == "te" and not (on_gpu and has_te):
        raise ValueError(
            "--backend te needs an NVIDIA GPU and the extra gpu (pip install 'thdpack[gpu]'); --backend torch runs anywhere"
        )
    _check_combination(options)
    return options


def _check_machine(precision: str, capability: Capability | None) -> None:
    needs = _LOW[precision]
    if needs.runs_on(capability):
        return
    wanted = (
        f"{_dotted(needs.first)} or above"
        if needs.end is None
        else f"{_dotted(needs.first)} to below {_dotted(needs.end)}"
    )
    has = (
        "no GPU"
        if capability is None
        else f"one of {_dotted(capability)} ({_generation(capability)})"
    )
    others = [name for name, other in _LOW.items() if other.runs_on(capability)]
    raise ValueError(
        f"--precision {precision} needs a GPU of compute capability {wanted} ({_generation(needs.first)}), and this machine has {has}: "
        f"use {', '.join([*others, 'bf16'])}"
    )


def _check_combination(options: ComputeOptions) -> None:
    """Raises: ValueError, for flags that the precision or the backend has no use for."""
    low = _LOW.get(options.precision)
    if options.compile and options.backend == "te":
        raise ValueError(
            "--compile is for --backend torch: backend te's layers consist of fused kernels already"
        )
    if options.precision_layers != "all" and low is None:
        raise ValueError(
            f"--precision-layers {options.precision_layers} chooses layers of a low precision, and --precision {options.precision} is none: "
            f"leave it out, or use one of {', '.join(_LOW)}"
        )
    if options.quantized_init and (low is None or not low.fp8):
        fp8 = ", ".join(name for name, needs in _LOW.items() if needs.fp8)
        raise ValueError(
            f"--quantized-init keeps weights in FP8, and --precision {options.precision} is not FP8: leave it out, or use one of {fp8}"
        )
    if options.quantized_init and options.cuda_graph:
        raise ValueError(
            "--quantized-init and --cuda-graph do not go together: FP8 weights are written outside of what a graph replays; leave one out"
        )


def _dotted(capability: Capability) -> str:
    return f"{capability[0]}.{capability[1]}"


def _generation(capability: Capability) -> str:
    return next((name for first, name in _GENERATIONS if capability >= first), "before Ampere")


def check(
    compute: ComputeOptions, model: ModelOptions, *, data: str, slice_tokens: int, world_size: int
) -> None:
    """Whether this model on this dataset can be computed so.

    Args:
        data: the dataset's name.
        slice_tokens: of a bucket, or of each rank's slice of it.
    Raises:
        ValueError: it cannot; says what to change.
    """
    low_layers(compute, model.layers)
    if compute.quantized_init and world_size > 1:
        raise ValueError(
            f"--quantized-init is for one process, for now, and there are {world_size}: leave it out"
        )
    if not is_low(compute.precision):
        return
    multiple, name = _LOW[compute.precision].multiple, compute.precision
    for option, size in (("--hidden-size", model.hidden_size), ("--ffn-size", model.ffn_size)):
        if size % multiple:
            raise ValueError(
                f"{option} is {size}, --precision {name} needs a multiple of {multiple}: change it, or use --precision bf16"
            )
    if slice_tokens % multiple:
        raise ValueError(
            f"{data} has {slice_tokens} tokens of a bucket for each rank, --precision {name} needs a multiple of {multiple}: "
            f"build it with such a --capacity, or use bf16"
        )


def low_layers(compute: ComputeOptions, layers: int) -> list[bool]:
    """bool[layers]: whose matrix products run in the low precision. No layer's, if the precision is not low.

    Raises:
        ValueError: --precision-layers says nothing that can be understood, names layers that are not there, or leaves none.
    """
    if not is_low(compute.precision):
        return [False] * layers
    text = compute.precision_layers
    if text == "all":
        return [True] * layers
    inner = re.fullmatch(r"inner:([0-9]+)", text)
    if not inner:
        return _listed(text, layers)
    outer = int(inner[1])
    if 2 * outer >= layers:
        raise ValueError(
            f"--precision-layers {text} leaves none of {layers} layers: N is at most {(layers - 1) // 2}; for none at all, use --precision bf16"
        )
    return [outer <= number < layers - outer for number in range(layers)]


def _listed(text: str, layers: int) -> list[bool]:
    """Layers of a list like 0,4,8-20."""
    chosen: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
        if not found:
            raise ValueError(
                f"--precision-layers is {text!r}, expected all, inner:N (all but the first N and the last N), or numbers such as 2-30 or 0,4,8-20"
            )
        first, last = int(found[1]), int(found[2] or found[1])
        if first > last or last >= layers:
            raise ValueError(
                f"--precision-layers {text}: {part} names no layers; this model's are 0 to {layers - 1}, and a span is written FIRST-LAST"
            )
        chosen.update(range(first, last + 1))
    return [number in chosen for number in range(layers)]


def stored_dtype(options: ComputeOptions) -> torch.dtype:
    """Of parameters between steps, or what FP8 ones pass for. If it is not fp32, the optimizer keeps fp32 masters."""
    return (
        torch.bfloat16 if options.backend == "te" and options.precision != "fp32" else torch.float32
    )


def compute_dtype(options: ComputeOptions) -> torch.dtype:
    """Of matrix products that are not in a low precision."""
    return torch.float32 if options.precision == "fp32" else torch.bfloat16


def autocast(
    options: ComputeOptions, device: torch.device, *, sharded: bool
) -> AbstractContextManager[Any]:
    """What a forward pass runs in. Under FSDP2 (`sharded`), its own policy casts fp32 parameters."""
    if is_low(options.precision):
        import transformer_engine.pytorch as te

        return te.autocast(enabled=True, recipe=_recipe(options.precision))
    if options.backend == "torch" and options.precision == "bf16" and not sharded:
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def backward_in_autocast(options: ComputeOptions) -> bool:
    """Whether the backward pass has to run in `autocast` as well.

    Transformer Engine computes layers again in an autocast of their own. If that is the outermost one, its exit moves delayed scaling's histories on, once
    for each layer and not once for each micro-batch.
    """
    return is_low(options.precision) and options.recompute != "none"


def _recipe(precision: str) -> Any:
    from transformer_engine.common import recipe

    return {
        "fp8-delayed": lambda: recipe.DelayedScaling(
            fp8_format=recipe.Format.HYBRID, amax_history_len=16, amax_compute_algo="max"
        ),
        "fp8-current": lambda: recipe.Float8CurrentScaling(fp8_format=recipe.Format.HYBRID),
        "fp8-block": lambda: recipe.Float8BlockScaling(),
        "mxfp8": lambda: recipe.MXFP8BlockScaling(),
        "nvfp4": lambda: recipe.NVFP4BlockScaling(),
    }[precision]()


def parameters(options: ComputeOptions, *, low: bool) -> AbstractContextManager[Any]:
    """What a layer is made in. Transformer Engine's modules remember it, for `quantize_parameters`."""
    if not (options.quantized_init and low):
        return nullcontext()
    import transformer_engine.pytorch as te

    return te.quantized_model_init(enabled=True, recipe=_recipe(options.precision))


def quantize_parameters(model: nn.Module) -> None:
    """Replace the weights of modules that were made for FP8 weights by such, of random values. All have memory on a GPU already."""
    with torch.enable_grad():  # without, they would lack the transposes that a backward pass reads, and forward passes would make them each time
        for module in model.modules():
            if getattr(module, "primary_weights_in_fp8", False):
                module.reset_parameters(defer_init=False)
    for name, tensor in scaling_tensors(model):
        if name.endswith("amax_history"):
            tensor.zero_()  # of those random values, which are about to be replaced


def is_quantized(parameter: Tensor) -> bool:
    """Whether it holds FP8, to be written by its `quantize_`; it passes for a bf16 tensor in everything else."""
    return hasattr(parameter, "quantize_")


def scaling_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Delayed scaling's state, by name: scales and histories of largest values, there from the first step on. The other recipes have none."""
    for name, module in model.named_modules():
        if next(module.parameters(recurse=False), None) is None:
            continue  # attention has some too, and never uses it: it runs in bf16
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
        for layer in model.layers:  # type: ignore[union-attr]
            for module in layer.modules():
                if isinstance(module, te.Linear) and not layer.stays_bf16:
                    module.init_fp8_metadata(num_gemms=1)
