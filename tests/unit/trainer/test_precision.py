"""Precisions: which machine runs which, which layers they are for, and FP8 weights and statistics as far as a CPU can say."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

from schemas.models import ModelOptions
from trainer import precision
from trainer.config import ComputeOptions, OptimizerOptions, OutputOptions, TrainOptions, parse
from trainer.distributed.topology import Topology, single_process
from trainer.model.esm2 import Esm2
from trainer.model.initialize import build, fill
from trainer.monitoring.layer_statistics import (
    LayerStatistics,
    check,
    configuration,
    layer_statistics,
)
from trainer.optimizer import Optimizer
from trainer.precision import Capability, low_layers, resolve_for

CPU = torch.device("cpu")
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
LOW = ("fp8-delayed", "fp8-current", "fp8-block", "mxfp8", "nvfp4")


def compute(**changes: Any) -> ComputeOptions:
    return ComputeOptions(**changes)


# machines


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("numbers", RUNS_ON)
def test_a_precision_runs_where_it_can_and_is_refused_elsewhere_with_what_to_use_there(
    numbers: str, machine: str
) -> None:
    capability = MACHINES[machine]
    if machine in RUNS_ON[numbers]:
        found = resolve_for(compute(precision=numbers), capability, has_te=True)
        assert (found.precision, found.backend) == (
            numbers,
            "torch" if capability is None else "te",
        )
        return
    with pytest.raises(
        ValueError, match=f"--precision {numbers} needs a GPU of compute capability"
    ) as refused:
        resolve_for(compute(precision=numbers), capability, has_te=True)
    message = str(refused.value)
    assert (
        "no GPU" if capability is None else f"one of {capability[0]}.{capability[1]}"
    ) in message
    for other in message.rpartition("use ")[2].split(", "):
        assert machine in RUNS_ON[other]


def test_a_refusal_says_what_is_needed_what_is_there_and_what_to_use() -> None:
    with pytest.raises(ValueError, match="mxfp8") as refused:
        resolve_for(compute(precision="mxfp8"), (9, 0), has_te=True)
    assert str(refused.value) == (
        "--precision mxfp8 needs a GPU of compute capability 10.0 to below 12.0 (Blackwell), and this machine has one of 9.0 (Hopper): "
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
def test_auto_is_what_the_machine_has(
    capability: Capability | None, has_te: bool, expected: tuple[str, str]
) -> None:
    found = resolve_for(compute(), capability, has_te=has_te)
    assert (found.backend, found.precision) == expected


@pytest.mark.parametrize(
    ("changes", "has_te", "message"),
    [
        ({"backend": "te"}, False, "--backend te needs an NVIDIA GPU and the extra gpu"),
        ({"precision": "fp8-current"}, False, "the extra gpu"),
        (
            {"precision": "fp8-current", "backend": "torch"},
            True,
            "--precision fp8-current needs --backend te",
        ),
        ({"compile": True}, True, "--compile is for --backend torch"),
        ({"precision_layers": "inner:1"}, True, "--precision bf16 is not one"),
        ({"precision_layers": "inner:1", "precision": "fp32"}, True, "--precision fp32 is not one"),
        (
            {"quantized_init": True},
            True,
            "--precision bf16 is not FP8: leave it out, or use one of fp8-delayed",
        ),
        ({"quantized_init": True, "backend": "torch"}, True, "is not FP8"),
        (
            {"quantized_init": True, "cuda_graph": True, "precision": "fp8-current"},
            True,
            "--quantized-init and --cuda-graph do not go together: FP8 weights",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    changes: dict[str, Any], has_te: bool, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve_for(compute(**changes), (9, 0), has_te=has_te)


def test_fp4_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="--precision nvfp4 is not FP8") as refused:
        resolve_for(compute(precision="nvfp4", quantized_init=True), (10, 0), has_te=True)
    assert "nvfp4" not in str(refused.value).rpartition("use one of")[2]


# sizes


@pytest.mark.parametrize(
    ("numbers", "multiple"),
    [("fp8-delayed", 16), ("fp8-current", 16), ("fp8-block", 16), ("mxfp8", 32), ("nvfp4", 32)],
)
def test_sizes_are_multiples_of_what_the_precision_needs(numbers: str, multiple: int) -> None:
    def say(
        hidden_size: int = multiple,
        ffn_size: int = multiple,
        slice_tokens: int = multiple,
        **changes: Any,
    ) -> None:
        model = ModelOptions(layers=3, hidden_size=hidden_size, heads=1, ffn_size=ffn_size)
        precision.check_model(
            compute(precision=numbers, **changes),
            model,
            data="d",
            slice_tokens=slice_tokens,
            world_size=1,
        )

    say()
    say(slice_tokens=3 * multiple)
    with pytest.raises(
        ValueError,
        match=f"--hidden-size is {multiple // 2}, --precision {numbers} needs a multiple of {multiple}: change it",
    ):
        say(hidden_size=multiple // 2)
    with pytest.raises(ValueError, match=f"--ffn-size is {multiple + 8}"):
        say(ffn_size=multiple + 8)
    with pytest.raises(ValueError, match=f"d gives each rank {multiple + 8} tokens.*--capacity"):
        say(slice_tokens=multiple + 8)
    with pytest.raises(ValueError, match="leaves none"):
        say(precision_layers="inner:2")


@pytest.mark.parametrize("numbers", ["fp32", "bf16"])
def test_other_precisions_take_any_size(numbers: str) -> None:
    precision.check_model(
        compute(precision=numbers),
        ModelOptions(hidden_size=6, heads=3),
        data="d",
        slice_tokens=101,
        world_size=8,
    )


def test_fp8_weights_are_for_one_process() -> None:
    options = compute(precision="fp8-current", quantized_init=True)
    precision.check_model(options, SMALL, data="d", slice_tokens=64, world_size=1)
    with pytest.raises(
        ValueError, match="--quantized-init supports one process only, and there are 2"
    ):
        precision.check_model(options, SMALL, data="d", slice_tokens=64, world_size=2)


# layers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", [0, 1, 2, 3, 4, 5, 6]),
        ("inner:0", [0, 1, 2, 3, 4, 5, 6]),
        ("inner:2", [2, 3, 4]),
        ("inner:3", [3]),
        ("2-5", [2, 3, 4, 5]),
        ("0,3,5-6", [0, 3, 5, 6]),
        ("6", [6]),
        ("4,1-4,1", [1, 2, 3, 4]),
        ("3-3", [3]),
    ],
)
def test_layers_that_are_named_and_no_others(text: str, expected: list[int]) -> None:
    found = low_layers(compute(precision="fp8-current", precision_layers=text), 7)
    assert [number for number, low in enumerate(found) if low] == expected
    assert len(found) == 7


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "inner",
        "inner:",
        "inner:-1",
        "inner:x",
        "1,",
        ",1",
        "1-",
        "-1",
        "1--2",
        "0 1",
        "1.5",
        "ALL",
        "²",
    ],
)
def test_layers_that_cannot_be_understood_are_an_error_that_says_what_can(text: str) -> None:
    with pytest.raises(
        ValueError,
        match=re.escape(
            "expected all, inner:N (all but the first N and the last N), or numbers such as 2-30"
        ),
    ):
        low_layers(compute(precision="fp8-current", precision_layers=text), 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("7", "--precision-layers 7: 7 names no layers; this model has layers 0 to 6"),
        ("0,5-7", "5-7 names no layers"),
        ("5-2", "5-2 names no layers"),
        ("inner:4", "--precision-layers inner:4 leaves none of 7 layers: N is at most 3"),
    ],
)
def test_layers_that_are_not_there_are_an_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        low_layers(compute(precision="fp8-current", precision_layers=text), 7)


def test_no_layer_of_a_run_in_bf16_is_low() -> None:
    assert low_layers(compute(precision="bf16"), 3) == [False] * 3


@pytest.mark.parametrize(
    ("numbers", "text", "expected"),
    [
        ("fp8-current", "inner:1", [True, False, True]),
        ("fp8-current", "all", [False] * 3),
        ("bf16", "all", [False] * 3),
    ],
)
def test_the_option_arrives_at_the_layers(numbers: str, text: str, expected: list[bool]) -> None:
    """Layers are told what they are not: a nested autocast costs the host time, and where no outer one is it says nothing."""
    model = build(SMALL, compute(backend="torch", precision=numbers, precision_layers=text))
    assert [layer.stays_bf16 for layer in model.layers] == expected


def test_options_are_flags() -> None:
    flags = [
        "--precision",
        "mxfp8",
        "--precision-layers",
        "inner:2",
        "--quantized-init",
        "--cuda-graph",
        "--tensor-statistics",
        "5",
    ]
    options = parse(["esm2-650m", "--data", "d", *flags])
    expected = ComputeOptions(
        precision="mxfp8", precision_layers="inner:2", quantized_init=True, cuda_graph=True
    )
    assert options.compute == expected
    assert options.output.tensor_statistics == 5
    with pytest.raises(ValueError, match="tensor-statistics"):
        OutputOptions(tensor_statistics=-1)


# FP8 weights, played by what looks like them


class Fp8Weight(nn.Parameter):
    """Remembers what it was quantized from. Its own numbers are bf16, and to be left alone."""

    def quantize_(self, tensor: Tensor) -> None:
        self.source = tensor.clone()

    def copy_(self, source: Tensor, non_blocking: bool = False) -> Tensor:
        self.quantize_(source)
        return self


def quantized_model() -> tuple[Esm2, dict[str, Tensor], Fp8Weight]:
    built = build(SMALL, compute(backend="torch", precision="bf16"))
    for parameter in built.parameters():
        parameter.data = parameter.data.bfloat16()
    module = built.layers[1].proj
    module.primary_weights_in_fp8 = True
    module.fp8_meta = {
        "scaling_fwd": SimpleNamespace(scale=torch.ones(3), amax_history=torch.zeros(16, 3))
    }

    def reset_parameters(*, defer_init: bool) -> None:
        assert not defer_init
        assert torch.is_grad_enabled()
        assert module.weight.device == CPU
        module.weight = Fp8Weight(torch.full_like(module.weight, 7.0))
        module.fp8_meta["scaling_fwd"].amax_history[0] = 7.0

    module.reset_parameters = reset_parameters
    masters = fill(built, {}, seed=0, topology=single_process(CPU))
    assert isinstance(module.weight, Fp8Weight)
    return built, masters, module.weight


def test_modules_made_for_fp8_weights_get_them_and_their_values() -> None:
    built, masters, weight = quantized_model()
    assert torch.equal(weight.source, masters["layers.1.proj.weight"])
    assert weight.source.dtype == torch.float32
    assert not [
        name
        for name, tensor in precision.scaling_tensors(built)
        if name.endswith("amax_history") and tensor.any()
    ]
    assert [
        name for name, parameter in built.named_weights() if precision.is_quantized(parameter)
    ] == ["layers.1.proj.weight"]


def test_fp8_weights_are_quantized_from_their_masters_after_a_step_and_after_loading() -> None:
    built, masters, weight = quantized_model()
    optimizer = Optimizer(built, OptimizerOptions(), masters)
    before = weight.source.clone()
    for parameter in built.parameters():
        parameter.grad = torch.ones_like(parameter)
    one = torch.tensor(1.0)
    optimizer.step(
        torch.tensor(1e-3), loss_sum=one, count=one, gradient_square=optimizer.gradient_square()
    )
    saved = dict(optimizer.named_tensors())
    assert not torch.equal(weight.source, before)
    assert torch.equal(weight.source, saved["model.layers.1.proj.weight"])
    for name, parameter in built.named_weights():
        if name != "layers.1.proj.weight":
            assert torch.equal(parameter, saved[f"model.{name}"].bfloat16()), name
    saved["model.layers.1.proj.weight"].fill_(0.25)
    optimizer.restored(1)
    assert torch.equal(weight.source, torch.full_like(weight.source, 0.25))
    assert torch.equal(weight, torch.full_like(weight, 7.0))


def test_scaling_state_is_that_of_modules_with_weights() -> None:
    """Attention's is never used, and would be missing right after a run went on."""
    model = nn.ModuleDict(
        {"linear": nn.Linear(2, 2), "attention": nn.Identity(), "bf16": nn.Linear(2, 2)}
    )
    for name in ("linear", "attention"):
        state = SimpleNamespace(scale=torch.ones(3), amax_history=torch.zeros(16, 3))
        model[name].fp8_meta = {"scaling_fwd": state, "scaling_bwd": SimpleNamespace()}
    assert [name for name, _ in precision.scaling_tensors(model)] == [
        "linear.scaling_fwd.scale",
        "linear.scaling_fwd.amax_history",
    ]


# statistics


def options(**changes: Any) -> TrainOptions:
    return TrainOptions(
        model=replace(SMALL, layers=12),
        compute=compute(backend="te", **changes),
        output=OutputOptions(tensor_statistics=4),
    )


@pytest.mark.parametrize("layers", ["all", "inner:1", "1,10-11"])
@pytest.mark.parametrize("numbers", ["bf16", *LOW])
def test_each_module_of_the_layers_is_in_one_section_with_what_fits_it(
    numbers: str, layers: str
) -> None:
    layers = "all" if numbers == "bf16" else layers
    asked = options(precision=numbers, precision_layers=layers)
    sections = yaml.safe_load(configuration(asked))
    for number, low in enumerate(low_layers(asked.compute, 12)):
        for module in ("layernorm_qkv", "proj", "layernorm_mlp.fc1", "layernorm_mlp.fc2"):
            name = f"model.layers.{number}.{module}"
            matching = [
                section
                for section in sections.values()
                if re.search(section["layers"]["layer_name_regex_pattern"], name)
            ]
            assert len(matching) == 1, name
            features = matching[0]["transformer_engine"]
            fits = (
                {"LogNvfp4TensorStats" if numbers == "nvfp4" else "LogFp8TensorStats"}
                if low
                else set()
            )
            assert features.keys() == {"LogTensorStats"} | fits
            for feature in features.values():
                assert [tensor["tensor"] for tensor in feature["tensors_struct"]] == [
                    "activation",
                    "gradient",
                    "weight",
                ]
                assert {tensor["freq"] for tensor in feature["tensors_struct"]} == {4}
    assert not any(
        re.search(section["layers"]["layer_name_regex_pattern"], "model.head.dense")
        for section in sections.values()
    )


def test_of_fp8_weights_there_is_nothing_to_compare_with() -> None:
    sections = yaml.safe_load(configuration(options(precision="fp8-delayed", quantized_init=True)))
    fits = {
        tensor["tensor"]: tensor["stats"]
        for tensor in sections["fp8-delayed"]["transformer_engine"]["LogFp8TensorStats"][
            "tensors_struct"
        ]
    }
    assert fits["weight"] == ["scale_inv_min", "scale_inv_max"]
    assert {"underflows%", "overflows%"} < set(fits["activation"])


@pytest.mark.parametrize(
    ("changes", "installed", "message"),
    [
        ({"backend": "torch"}, True, "--backend torch has none"),
        (
            {"backend": "te", "cuda_graph": True},
            True,
            "--tensor-statistics and --cuda-graph do not go together",
        ),
        ({"backend": "te"}, False, "pip install nvdlfw-inspect"),
    ],
)
def test_statistics_that_cannot_be_are_refused(
    changes: dict[str, Any], installed: bool, message: str
) -> None:
    asked = replace(options(), compute=compute(**changes))
    with pytest.raises(ValueError, match=message):
        check(asked, installed=installed)


def test_no_statistics_cost_nothing_and_leave_nothing(tmp_path: Path) -> None:
    asked = TrainOptions(output=OutputOptions(out=str(tmp_path)))
    with ExitStack() as stack:
        none = stack.enter_context(layer_statistics(asked, single_process(CPU)))
        none.begin(nn.Identity(), 0)
        none.step()
        with none.paused():
            pass
    assert not list(tmp_path.iterdir())


def test_a_statistic_is_a_line_that_names_layer_and_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[Any] = []
    api = SimpleNamespace(
        infer_and_assign_layer_names=called.append, initialize_training_step=called.append
    )
    monkeypatch.setitem(__import__("sys").modules, "nvdlfw_inspect", SimpleNamespace(api=api))
    monkeypatch.setitem(__import__("sys").modules, "nvdlfw_inspect.api", api)
    old = [json.dumps({"step": step}) + "\n" for step in (4, 8, 12)]
    (tmp_path / "statistics.jsonl").write_text("".join(old))
    model = nn.Identity()

    def write(topology: Topology) -> None:
        found = LayerStatistics(tmp_path, topology)
        found.begin(model, 8)
        found.write("model.layers.0.layernorm_mlp.fc1_weight_l2_norm", torch.tensor(0.5), 12)
        found.write("model.layers.10.proj_gradient_underflows%", float("nan"), 12)
        found.close()

    write(replace(single_process(CPU), rank=1))  # what rank 0 writes is of all ranks
    write(single_process(CPU))
    assert called == [model, 9] * 2
    lines = [json.loads(line) for line in (tmp_path / "statistics.jsonl").read_text().splitlines()]
    assert lines == [
        {"step": 4},
        {"step": 8},
        {
            "step": 12,
            "layer": "layers.0.layernorm_mlp.fc1",
            "tensor": "weight",
            "statistic": "l2_norm",
            "value": 0.5,
        },
        {
            "step": 12,
            "layer": "layers.10.proj",
            "tensor": "gradient",
            "statistic": "underflows%",
            "value": None,
        },
    ]
