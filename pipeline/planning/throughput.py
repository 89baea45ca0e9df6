"""Measured throughput of training, from which `thdpack stats` computes GPU-hours.

The rows are copied from docs/benchmarks.md, and a test compares them with that page. All presets
except 15B were measured at 16,384 tokens per step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GPU: Final = "NVIDIA H200"

_MEASURED: Final = 'thdpack, one NVIDIA H200, 2026-11-21: docs/benchmarks.md, "The training step"'
_MEASURED_ON_FOUR: Final = (
    'thdpack, four NVIDIA H200, rate per GPU, 2026-11-22: docs/benchmarks.md, "Many GPUs"'
)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Measured throughput of a preset.

    tokens_per_second: number of tokens per second on one GPU, without padding
    """

    preset: str
    precision: str
    tokens_per_second: int
    source: str


THROUGHPUT: Final = (
    Throughput("esm2-8m", "bf16", 3_025_000, _MEASURED),
    Throughput("esm2-35m", "bf16", 1_013_000, _MEASURED),
    Throughput("esm2-150m", "bf16", 331_500, _MEASURED),
    Throughput("esm2-650m", "bf16", 112_700, _MEASURED),
    Throughput("esm2-650m", "fp8-delayed", 145_600, _MEASURED),
    Throughput("esm2-3b", "bf16", 31_400, _MEASURED),
    Throughput("esm2-3b", "fp8-delayed", 45_700, _MEASURED),
    Throughput("esm2-15b", "fp8-delayed", 8_843, _MEASURED_ON_FOUR),
)
