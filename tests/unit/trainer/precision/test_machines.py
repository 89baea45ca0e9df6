"""Precisions: the GPUs that support each precision, and the model sizes that it requires."""

from __future__ import annotations

import re
from typing import Any

import pytest

from schemas.models import ModelOptions
from trainer import precision
from trainer.config import ComputeOptions, OutputOptions, parse
from trainer.precision import Capability, resolve_for

SMALL = ModelOptions(layers=3, hidden_size=64, heads=4, ffn_size=128)
MACHINES: dict[str, Capability | None] = {
    "cpu": None,
    "ampere": (8, 0),
    "ada": (8, 9),
    "hopper": (9, 0),
    "blackwell": (10, 0),
    "rtx-blackwell": (12, 0),
}
RUNS_ON = {
    "fp32": set(MACHINES),
    "bf16": set(MACHINES),
    "fp8-delayed": {"ada", "hopper", "blackwell", "rtx-blackwell"},
    "fp8-current": {"ada", "hopper", "blackwell", "rtx-blackwell"},
    "fp8-block": {"hopper", "blackwell", "rtx-blackwell"},
    "mxfp8": {"blackwell"},
    "nvfp4": {"blackwell", "rtx-blackwell"},
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("numbers", RUNS_ON)
def test_a_precision_runs_on_suitable_gpus_and_elsewhere_the_error_names_alternatives(
    numbers: str, machine: str
) -> None:
    capability = MACHINES[machine]
    if machine in RUNS_ON[numbers]:
        found = resolve_for(ComputeOptions(precision=numbers), capability, has_te=True)
        assert (found.precision, found.backend) == (
            numbers,
            "torch" if capability is None else "te",
        )
        return
    with pytest.raises(
        ValueError, match=f"--precision {numbers} needs a GPU of compute capability"
    ) as refused:
        resolve_for(ComputeOptions(precision=numbers), capability, has_te=True)
    message = str(refused.value)
    assert (
        "no GPU" if capability is None else f"a GPU of {capability[0]}.{capability[1]}"
    ) in message
    others = message.rpartition("use ")[2].split(", ")
    assert all(machine in RUNS_ON[other] for other in others)
    default = resolve_for(ComputeOptions(precision="auto"), capability, has_te=True)
    assert others[-1] == default.precision


def test_the_error_for_a_precision_names_its_requirement_the_gpu_and_alternatives() -> None:
    with pytest.raises(ValueError, match="mxfp8") as refused:
        resolve_for(ComputeOptions(precision="mxfp8"), (9, 0), has_te=True)
    assert str(refused.value) == (
        "--precision mxfp8 needs a GPU of compute capability 10.0 to below 12.0 (Blackwell), "
        "but this machine has a GPU of 9.0 (Hopper): "
        "use fp8-delayed, fp8-current, fp8-block, bf16"
    )


@pytest.mark.parametrize(
    ("capability", "has_te", "expected"),
    [
        (None, False, ("torch", "fp32")),
        ((9, 0), False, ("torch", "bf16")),
        ((9, 0), True, ("te", "bf16")),
    ],
)
def test_backend_auto_and_precision_auto_give_the_best_that_the_machine_supports(
    capability: Capability | None, has_te: bool, expected: tuple[str, str]
) -> None:
    found = resolve_for(ComputeOptions(), capability, has_te=has_te)
    assert (found.backend, found.precision) == expected


@pytest.mark.parametrize(
    ("changes", "has_te", "message"),
    [
        ({"backend": "te"}, False, "--backend te needs an NVIDIA GPU and Transformer"),
        ({"precision": "fp8-current"}, False, "and Transformer Engine"),
        (
            {"precision": "fp8-current", "backend": "torch"},
            True,
            "--precision fp8-current needs --backend te",
        ),
        ({"compile": True}, True, "--compile is for --backend torch"),
        ({"precision_layers": "inner:1"}, True, "but --precision is bf16"),
        ({"precision_layers": "inner:1", "precision": "fp32"}, True, "but --precision is fp32"),
        (
            {"quantized_init": True},
            True,
            "--precision is bf16: remove --quantized-init, or use a --precision of fp8-delayed",
        ),
        ({"quantized_init": True, "backend": "torch"}, True, "but --precision is"),
    ],
)
def test_incompatible_options_are_refused(
    changes: dict[str, Any], has_te: bool, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve_for(ComputeOptions(**changes), (9, 0), has_te=has_te)


def test_fp4_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="but --precision is nvfp4") as refused:
        resolve_for(ComputeOptions(precision="nvfp4", quantized_init=True), (10, 0), has_te=True)
    assert "nvfp4" not in str(refused.value).rpartition("use a --precision of")[2]


@pytest.mark.parametrize(
    ("numbers", "multiple"),
    [("fp8-delayed", 16), ("fp8-current", 16), ("fp8-block", 16), ("mxfp8", 32), ("nvfp4", 32)],
)
def test_sizes_must_be_multiples_of_the_number_that_the_precision_requires(
    numbers: str, multiple: int
) -> None:
    def say(
        hidden_size: int = multiple,
        ffn_size: int = multiple,
        slice_tokens: int = multiple,
        **changes: Any,
    ) -> None:
        model = ModelOptions(layers=3, hidden_size=hidden_size, heads=1, ffn_size=ffn_size)
        precision.check_model(
            ComputeOptions(precision=numbers, **changes),
            model,
            data="d",
            slice_tokens=slice_tokens,
        )

    say()
    say(slice_tokens=3 * multiple)
    with pytest.raises(
        ValueError,
        match=(
            f"--hidden-size is {multiple // 2}, "
            f"but --precision {numbers} needs a multiple of {multiple}: change "
        ),
    ):
        say(hidden_size=multiple // 2)
    with pytest.raises(ValueError, match=f"--ffn-size is {multiple + 8}"):
        say(ffn_size=multiple + 8)
    with pytest.raises(ValueError, match=f"each rank holds {multiple + 8} tokens.*--capacity"):
        say(slice_tokens=multiple + 8)
    with pytest.raises(ValueError, match="selects none"):
        say(precision_layers="inner:2")


@pytest.mark.parametrize("numbers", ["fp32", "bf16"])
def test_fp32_and_bf16_accept_any_size(numbers: str) -> None:
    precision.check_model(
        ComputeOptions(precision=numbers),
        ModelOptions(hidden_size=6, heads=3),
        data="d",
        slice_tokens=101,
    )


def test_precision_options_are_command_line_flags() -> None:
    flags = [
        "--precision",
        "mxfp8",
        "--precision-layers",
        "inner:2",
        "--quantized-init",
        "--cuda-graph",
        "off",
        "--tensor-statistics",
        "5",
    ]
    options = parse(["esm2-650m", "--data", "d", *flags])
    expected = ComputeOptions(
        precision="mxfp8", precision_layers="inner:2", quantized_init=True, cuda_graph="off"
    )
    assert options.compute == expected
    assert options.output.tensor_statistics == 5
    with pytest.raises(ValueError, match="tensor-statistics"):
        OutputOptions(tensor_statistics=-1)
