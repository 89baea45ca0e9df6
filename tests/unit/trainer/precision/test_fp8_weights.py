"""FP8 weights on a CPU. A stand-in parameter records the tensor from which it is quantized."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from schemas.models import ModelOptions
from trainer import precision
from trainer.config import ComputeOptions, OptimizerOptions
from trainer.distributed.topology import single_process
from trainer.model.esm2 import Esm2
from trainer.model.initialize import build, fill
from trainer.optimizer import Optimizer

CPU = torch.device("cpu")
SMALL = ModelOptions(layers=3, hidden_size=64, heads=4, ffn_size=128)


class Fp8Weight(nn.Parameter):
    """Stand-in for an FP8 weight. `source` is a copy of the tensor that was quantized last.

    The bf16 values of the stand-in never change.
    """

    def quantize_(self, tensor: Tensor) -> None:
        self.source = tensor.clone()

    def copy_(self, source: Tensor, non_blocking: bool = False) -> Tensor:
        self.quantize_(source)
        return self


def quantized_model() -> tuple[Esm2, dict[str, Tensor], Fp8Weight]:
    built = build(SMALL, ComputeOptions(backend="torch", precision="bf16"))
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


def test_fp8_weights_are_initialized_from_their_fp32_masters() -> None:
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
        torch.tensor(1e-3), loss_sum=one, count=one, gradient_square=optimizer.gradients.square()
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


def test_scaling_state_is_saved_only_for_modules_with_weights() -> None:
    """Attention modules never use their scaling state."""
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
