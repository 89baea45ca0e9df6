"""Replace `auto` by a backend and a precision. Check that backend, precision, machine, model and
dataset fit together.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Final

import torch

from schemas.models import ModelOptions
from schemas.text.phrases import install_command
from trainer.config import ComputeOptions
from trainer.precision.low_precision import LOW, Capability, is_low, low_layers

_GENERATIONS: Final = (
    ((10, 0), "Blackwell"),
    ((9, 0), "Hopper"),
    ((8, 9), "Ada"),
    ((8, 0), "Ampere"),
)


def resolve(options: ComputeOptions, device: torch.device) -> ComputeOptions:
    """Return the options with `auto` replaced by the backend and precision for this machine.

    Raises:
        ValueError: the options contradict each other, or this machine does not support them. The
            message names a remedy.
    """
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    options = resolve_for(options, capability, has_te=find_spec("transformer_engine") is not None)
    if is_low(options.precision):
        import transformer_engine.pytorch as te

        available, reason = getattr(te, LOW[options.precision].available)(return_reason=True)
        if not available:
            raise ValueError(
                f"this machine does not support --precision {options.precision}: {reason} "
                "Use --precision bf16"
            )
    return options


def resolve_for(
    options: ComputeOptions, capability: Capability | None, *, has_te: bool
) -> ComputeOptions:
    """Return the options with `auto` replaced by the backend and precision for the given machine.

    Args:
        capability: compute capability of the GPU; None if the machine has no GPU.
        has_te: True if Transformer Engine is installed.
    Raises:
        ValueError: the options contradict each other, or the machine does not support them. The
            message names a remedy.
    """
    on_gpu, low = capability is not None, is_low(options.precision)
    if low and options.backend == "torch":
        raise ValueError(
            f"--precision {options.precision} needs --backend te, but --backend is torch: "
            "change one of the two"
        )
    if low:
        _check_machine(options.precision, capability)
    if options.backend == "auto":
        options = replace(options, backend="te" if low or (on_gpu and has_te) else "torch")
    if options.precision == "auto":
        options = replace(options, precision="bf16" if on_gpu else "fp32")
    if options.backend == "te" and not (on_gpu and has_te):
        raise ValueError(
            "--backend te needs an NVIDIA GPU and Transformer Engine "
            f"({install_command('gpu')}): "
            "install it, or use --backend torch"
        )
    _check_combination(options)
    return options


def _check_machine(precision: str, capability: Capability | None) -> None:
    needs = LOW[precision]
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
        else f"a GPU of {_dotted(capability)} ({_generation(capability)})"
    )
    others = [name for name, other in LOW.items() if other.runs_on(capability)]
    raise ValueError(
        f"--precision {precision} needs a GPU of compute capability {wanted} "
        f"({_generation(needs.first)}), but this machine has {has}: "
        f"use {', '.join([*others, 'fp32' if capability is None else 'bf16'])}"
    )


def _check_combination(options: ComputeOptions) -> None:
    """Check that flags are compatible with the precision and the backend.

    Raises:
        ValueError: a flag has no effect or cannot work. The message names the flag and a remedy.
    """
    low = LOW.get(options.precision)
    if options.compile and options.backend == "te":
        raise ValueError(
            "--compile is for --backend torch only, because the layers of backend te already "
            "consist of fused kernels: remove --compile, or use --backend torch"
        )
    if options.precision_layers != "all" and low is None:
        raise ValueError(
            f"--precision-layers {options.precision_layers} needs a low precision, but --precision "
            f"is {options.precision}: remove --precision-layers, "
            f"or use a --precision of {', '.join(LOW)}"
        )
    if options.quantized_init and (low is None or not low.fp8):
        fp8 = ", ".join(name for name, needs in LOW.items() if needs.fp8)
        raise ValueError(
            f"--quantized-init stores weights in FP8, but --precision is {options.precision}: "
            f"remove --quantized-init, or use a --precision of {fp8}"
        )


def _dotted(capability: Capability) -> str:
    return f"{capability[0]}.{capability[1]}"


def _generation(capability: Capability) -> str:
    return next((name for first, name in _GENERATIONS if capability >= first), "before Ampere")


def check_model(
    compute: ComputeOptions, model: ModelOptions, *, data: str, slice_tokens: int
) -> None:
    """Check that this model can be trained on this dataset in this precision.

    Args:
        data: URL of the dataset, for messages.
        slice_tokens: number of tokens of a bucket that each rank holds. Without context
            parallelism, this is the whole bucket.
    Raises:
        ValueError: the model cannot be trained. The message says what to change.
    """
    low_layers(compute, model.layers)
    if not is_low(compute.precision):
        return
    multiple, name = LOW[compute.precision].multiple, compute.precision
    for option, size in (("--hidden-size", model.hidden_size), ("--ffn-size", model.ffn_size)):
        if size % multiple:
            raise ValueError(
                f"{option} is {size}, but --precision {name} needs a multiple of {multiple}: "
                f"change {option}, or use --precision bf16"
            )
    if slice_tokens % multiple:
        raise ValueError(
            f"each rank holds {slice_tokens} tokens of a bucket of {data}, but --precision {name} "
            f"needs a multiple of {multiple}: "
            f"build the dataset with another --capacity, or use --precision bf16"
        )
