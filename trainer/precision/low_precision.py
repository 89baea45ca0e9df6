"""Low precisions: formats of 8 and 4 bits, the GPUs that support them, and the layers that use
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainer.config import ComputeOptions

Capability = tuple[int, int]
"""Compute capability of a GPU: 8.0 Ampere, 8.9 Ada, 9.0 Hopper, 10.0 and above Blackwell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LowPrecision:
    """Requirements of a low precision.

    first, end: supported compute capabilities, from `first` to below `end`; no upper limit if `end`
        is None.
    available: name of the function of Transformer Engine that checks further requirements, such as
        the version of CUDA.
    multiple: number by which the sizes of matrices must be divisible.
    fp8: True for FP8, False for other formats.
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


LOW: Final[Mapping[str, LowPrecision]] = {
    "fp8-delayed": LowPrecision(first=(8, 9), available="is_fp8_available"),
    "fp8-current": LowPrecision(first=(8, 9), available="is_fp8_available"),
    "fp8-block": LowPrecision(first=(9, 0), available="is_fp8_block_scaling_available"),
    # For compute capability 12.x, Transformer Engine lacks some matrix layouts.
    "mxfp8": LowPrecision(first=(10, 0), end=(12, 0), available="is_mxfp8_available", multiple=32),
    # 32, because a row must be a multiple of 16 bytes, which are 32 numbers of 4 bits.
    "nvfp4": LowPrecision(first=(10, 0), available="is_nvfp4_available", multiple=32, fp8=False),
}


def is_low(precision: str) -> bool:
    """Return whether matrix products run in 8 or 4 bits, with a recipe of Transformer Engine."""
    return precision in LOW


def low_layers(compute: ComputeOptions, layers: int) -> list[bool]:
    """Return for each layer whether its matrix products run in the low precision, bool[layers]. If
    the precision is not low, all are False.

    Raises:
        ValueError: --precision-layers cannot be parsed, names a layer that does not exist, or
            selects no layer.
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
            f"--precision-layers {text} selects none of the {layers} layers: use inner:N with N at "
            f"most {(layers - 1) // 2}, or --precision bf16 for all layers in bf16"
        )
    return [outer <= number < layers - outer for number in range(layers)]


def _listed(text: str, layers: int) -> list[bool]:
    """Return for each layer whether a list such as 0,4,8-20 names it, bool[layers]."""
    chosen: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
        if not found:
            raise ValueError(
                f"--precision-layers is {text!r}, expected all, inner:N (all but the first N and "
                "the last N), or numbers such as 2-30 or 0,4,8-20"
            )
        first, last = int(found[1]), int(found[2] or found[1])
        if first > last or last >= layers:
            raise ValueError(
                f"--precision-layers {text}: {part} is not a layer or a range FIRST-LAST. This "
                f"model has layers 0 to {layers - 1}"
            )
        chosen.update(range(first, last + 1))
    return [number in chosen for number in range(layers)]
