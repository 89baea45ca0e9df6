"""Statistics of layers: configuration, refused options and the lines of statistics.jsonl."""

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
from torch import nn

import trainer.monitoring.layer_statistics as statistics_module
from schemas.models import ModelOptions
from trainer.config import ComputeOptions, OutputOptions, TrainOptions
from trainer.distributed.topology import Topology, single_process
from trainer.monitoring.layer_statistics import (
    LayerStatistics,
    check_statistics,
    configuration,
    layer_statistics,
)
from trainer.precision import low_layers

CPU = torch.device("cpu")
SMALL = ModelOptions(layers=3, hidden_size=64, heads=4, ffn_size=128)
LOW = ("fp8-delayed", "fp8-current", "fp8-block", "mxfp8", "nvfp4")


def options(**changes: Any) -> TrainOptions:
    return TrainOptions(
        model=replace(SMALL, layers=12),
        compute=ComputeOptions(backend="te", **changes),
        output=OutputOptions(tensor_statistics=4),
    )


@pytest.mark.parametrize("layers", ["all", "inner:1", "1,10-11"])
@pytest.mark.parametrize("numbers", ["bf16", *LOW])
def test_the_configuration_selects_each_module_once_with_statistics_of_its_precision(
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


def test_fp8_weights_have_no_statistics_that_need_the_weights_in_higher_precision() -> None:
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
        ({"backend": "torch"}, True, "but --backend is torch"),
        ({"backend": "te"}, False, "pip install nvdlfw-inspect"),
    ],
)
def test_unsupported_statistics_are_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], installed: bool, message: str
) -> None:
    monkeypatch.setattr(statistics_module, "find_spec", lambda name: name if installed else None)
    asked = replace(options(), compute=ComputeOptions(**changes))
    with pytest.raises(ValueError, match=message):
        check_statistics(asked)


def test_disabled_statistics_write_nothing(tmp_path: Path) -> None:
    asked = TrainOptions(output=OutputOptions(out=str(tmp_path)))
    with ExitStack() as stack:
        none = stack.enter_context(layer_statistics(asked, single_process(CPU)))
        none.begin(nn.Identity(), 0)
        none.step()
        with none.paused():
            pass
    assert not list(tmp_path.iterdir())


def test_each_statistic_is_a_line_that_names_layer_and_tensor(
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

    write(replace(single_process(CPU), rank=1))  # writes nothing, because it is not rank 0
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
