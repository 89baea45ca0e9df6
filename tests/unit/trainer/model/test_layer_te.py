"""Backend `te` on a CPU: names of parameters, and the choice of the attention kernel.

Stand-ins replace Transformer Engine and Triton.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from schemas.models import ModelOptions
from trainer import precision
from trainer.config import ComputeOptions
from trainer.model.esm2 import SequenceLayout
from trainer.model.initialize import build

SMALL = ModelOptions(layers=2, hidden_size=64, heads=4, ffn_size=128)


class Linear(nn.Module):
    """Stand-in for te.Linear, with a weight, a bias, and an empty extra state."""

    def __init__(
        self, in_features: int, out_features: int, *, device: str, return_bias: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device))
        self.bias = nn.Parameter(torch.empty(out_features, device=device))
        self.return_bias = return_bias

    def forward(self, x: Tensor) -> Any:
        return (
            (F.linear(x, self.weight), self.bias)
            if self.return_bias
            else F.linear(x, self.weight, self.bias)
        )

    def get_extra_state(self) -> Tensor:
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, state: Any) -> None: ...


class DotProductAttention(nn.Module):
    def __init__(self, heads: int, size: int, **_: Any) -> None:
        super().__init__()


@pytest.fixture
def layer_te(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import trainer.model.layer_te with stand-ins; remove it afterwards."""
    names = ("transformer_engine", "transformer_engine.pytorch", "triton", "triton.language")
    stand_ins: dict[str, Any] = {name: ModuleType(name) for name in names}
    te, stand_ins["triton"].jit = stand_ins["transformer_engine.pytorch"], lambda function: function
    te.Linear, te.DotProductAttention, te.autocast = Linear, DotProductAttention, nullcontext
    for name in ("transformer_engine.pytorch", "triton.language"):
        parent, _, child = name.rpartition(".")
        setattr(stand_ins[parent], child, stand_ins[name])
    fp8_tensors: Any = ModuleType("trainer.kernels.fp8_tensors")
    fp8_tensors.delayed_quantizer = lambda linear: None  # as if a precision other than FP8 was used
    fp8_tensors.fp8_tensor = fp8_tensors.torch_dtype = None
    stand_ins[fp8_tensors.__name__] = fp8_tensors
    before = set(sys.modules)
    with monkeypatch.context() as while_importing:
        for name, stand_in in stand_ins.items():
            while_importing.setitem(sys.modules, name, stand_in)
        import trainer.model.layer_te
    yield trainer.model.layer_te
    for name in set(sys.modules) - before:
        if name.startswith("trainer."):
            del sys.modules[name]
            package, _, module = name.rpartition(".")
            if package in sys.modules:
                delattr(sys.modules[package], module)


def test_models_of_both_backends_have_tensors_of_the_same_names_and_shapes(
    layer_te: ModuleType,
) -> None:
    te, plain = (
        build(SMALL, ComputeOptions(backend=backend, precision="fp32"))
        for backend in ("te", "torch")
    )  # type: ignore[arg-type]
    shapes = [
        {
            name: tensor.shape
            for name, tensor in model.state_dict().items()
            if not name.endswith("_extra_state")
        }
        for model in (te, plain)
    ]
    assert shapes[0] == shapes[1]
    assert {name: tensor.shape for name, tensor in te.named_tensors()} == {
        name: tensor.shape for name, tensor in plain.named_tensors()
    }


@pytest.mark.parametrize(("saved", "loaded"), [("te", "torch"), ("torch", "te")])
def test_a_saved_model_loads_with_the_other_backend(
    layer_te: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: str, loaded: str
) -> None:
    # imported here because it is slow to import
    from trainer.model.hf_model import ThdpackEsmConfig, ThdpackEsmForMaskedLM

    # the real `resolve` refuses backend te on a machine without a GPU
    monkeypatch.setattr(precision, "resolve", lambda options, device: options)
    shape = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    model = ThdpackEsmForMaskedLM(ThdpackEsmConfig(**shape, backend=saved))
    with torch.no_grad():
        for _, tensor in model.model.named_tensors():
            tensor.uniform_()
    model.save_pretrained(tmp_path)
    again, report = ThdpackEsmForMaskedLM.from_pretrained(
        tmp_path, backend=loaded, output_loading_info=True
    )
    assert type(again.model.layers[0]).__module__ == f"trainer.model.layer_{loaded}"
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    found = dict(again.model.named_tensors())
    for name, tensor in model.model.named_tensors():
        assert torch.equal(found[name], tensor), name


def test_our_attention_kernel_is_chosen_only_for_rows_that_it_supports(
    layer_te: ModuleType,
) -> None:
    sequences = SequenceLayout(torch.tensor([0, 1024], dtype=torch.int32), 1024)

    def ours(
        tokens: int, size: int = 64, dtype: torch.dtype = torch.bfloat16, **changes: Any
    ) -> bool:
        qkv = torch.empty(tokens, 128, 3, size, dtype=dtype, device="meta")
        return bool(layer_te.is_ours(qkv, replace(sequences, **changes)))

    limit = -(-(2**31) // (128 * 3 * 64))
    assert ours(16_384)
    assert ours(limit - 1)
    assert not ours(limit)
    assert ours(16_384, size=128)
    assert not ours(16_384, size=128, max_seqlen=2048)
    assert not ours(16_384, size=130)
    assert not ours(16_384, dtype=torch.float32)
    assert not ours(16_384, max_seqlen=4096)
    assert not ours(16_384, lengths=torch.tensor([1000]))
