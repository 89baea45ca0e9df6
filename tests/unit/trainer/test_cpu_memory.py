"""A run on a CPU that cannot fit into the machine's memory is refused before it starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.planning.estimate import Setting
from schemas.models import ESM2_MODELS
from trainer.start.cpu_memory import check_cpu_memory

GIB = 1 << 30
SETTING = Setting(
    model=ESM2_MODELS["esm2-35m"],
    tokens=16384,
    real_tokens=16000.0,
    squares=8e6,
    max_seqlen=1024,
    fp8=False,
)
"""`thdpack train esm2-35m` with this setting took 9.0 GiB on a CPU in fp32."""


def test_the_memory_of_a_machine_limits_the_runs_on_its_cpu() -> None:
    check_cpu_memory(SETTING, precision="fp32", ranks=1, available=8 * GIB)
    with pytest.raises(
        ValueError, match=r"no GPU.* needs at least 7 GiB .* has 6 GiB: use a machi"
    ):
        check_cpu_memory(SETTING, precision="fp32", ranks=1, available=6 * GIB)
    with pytest.raises(ValueError, match=r"on 2 ranks needs at least 14 GiB"):
        check_cpu_memory(SETTING, precision="fp32", ranks=2, available=8 * GIB)
    check_cpu_memory(SETTING, precision="bf16", ranks=1, available=6 * GIB)
    with pytest.raises(ValueError, match=r"or a smaller model .*, or --recompute full, or a dat"):
        check_cpu_memory(SETTING, precision="fp32", ranks=1, available=6 * GIB)
    with pytest.raises(ValueError, match=r"or a smaller model such as esm2-8m$"):
        check_cpu_memory(SETTING, precision="fp32", ranks=64, available=6 * GIB)
    less = replace(SETTING, recompute="full")
    check_cpu_memory(less, precision="fp32", ranks=1, available=6 * GIB)
