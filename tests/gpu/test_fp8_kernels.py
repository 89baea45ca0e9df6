"""Kernels that convert to FP8 themselves, compared with Transformer Engine's conversion.

New memory is filled with NaN, so that the tests find values that a kernel fails to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.gpu.random_models import GPU, SHAPES, error, model, row, run
from trainer.precision.delayed_scaling import scaling_tensors

SCALE, GRAD_SCALE = 37.3, 1234.5


@pytest.fixture(autouse=True)
def _poisoned_memory() -> Iterator[None]:
    """Fill torch.empty with NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(3)
    yield
    torch.use_deterministic_algorithms(False)


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, device=GPU, dtype=torch.bfloat16)


def quantizer(scale: float, *, of_grad: bool = False) -> Any:
    from transformer_engine.pytorch.constants import TE_DType
    from transformer_engine.pytorch.tensor.float8_tensor import Float8Quantizer

    dtype = torch.float8_e5m2 if of_grad else torch.float8_e4m3fn
    return Float8Quantizer(
        torch.full((1,), scale, device=GPU), torch.zeros(1, device=GPU), TE_DType[dtype]
    )


def assert_same(found: Any, of_found: Any, expected: Tensor, of_expected: Any) -> None:
    """Compare with Transformer Engine's conversion of `expected`: numbers, transposed numbers,
    inverse of the scale and largest absolute number.
    """
    converted = of_expected(expected)
    assert torch.equal(found._data, converted._data)
    assert torch.equal(found._transpose, converted._transpose)
    assert torch.equal(found._scale_inv, converted._scale_inv)
    assert torch.equal(of_found.amax, of_expected.amax)
    assert float(of_found.amax) > 0


@pytest.mark.parametrize("tanh", [False, True])
@pytest.mark.parametrize(("tokens", "size"), [(16, 32), (256, 1280), (1040, 1936), (2048, 5120)])
def test_gelu_in_fp8_has_the_bits_of_gelu_that_is_converted_afterwards(
    tokens: int, size: int, tanh: bool
) -> None:
    from trainer.kernels.gelu import BiasGelu
    from trainer.kernels.gelu_fp8 import BiasGeluFp8

    x, bias, grad = numbers(tokens, size) * 2, numbers(size), numbers(tokens, size)
    x[0, 0] = 300.0  # beyond the largest number of E4M3 after scaling
    ours = [t.clone().requires_grad_() for t in (x, bias)]
    theirs = [t.clone().requires_grad_() for t in (x, bias)]
    of_out, of_grad = quantizer(SCALE), quantizer(GRAD_SCALE, of_grad=True)
    found = BiasGeluFp8.apply(*ours, tanh, of_out, of_grad)
    kept: list[Any] = []
    ours[0].register_hook(lambda grad: kept.append(grad))
    expected = BiasGelu.apply(*theirs, tanh)
    assert_same(found, of_out, expected.detach(), quantizer_like(of_out))
    found.backward(grad)
    expected.backward(grad)
    assert theirs[0].grad is not None
    assert_same(kept[0], of_grad, theirs[0].grad, quantizer_like(of_grad))
    torch.testing.assert_close(ours[1].grad, theirs[1].grad, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("size", [64, 320, 1280, 5120])
@pytest.mark.parametrize("has_bias", [True, False])
def test_norm_in_fp8_is_a_norm_that_is_converted_afterwards(size: int, has_bias: bool) -> None:
    """The compiler may fuse other multiplications with additions in the two kernels. So a few
    numbers in a million are rounded to the neighbour.
    """
    from trainer.kernels.norm import AddNorm

    values = [numbers(272, size), numbers(272, size), numbers(size) if has_bias else None]
    values += [numbers(size), numbers(size)]
    of_out = quantizer(SCALE)
    total, found = AddNorm.apply(*values, 1e-5, of_out)
    expected_total, expected = AddNorm.apply(*values, 1e-5)
    assert torch.equal(total, expected_total)
    of_expected = quantizer_like(of_out)
    converted = of_expected(expected)
    apart = (found._data.int() - converted._data.int()).abs()
    assert int(apart.max()) <= 1
    assert float(apart.float().mean()) < 1e-4
    assert torch.equal(found._scale_inv, converted._scale_inv)
    torch.testing.assert_close(of_out.amax, of_expected.amax, rtol=2**-8, atol=0.0)


def quantizer_like(other: Any) -> Any:
    """Return a quantizer with the same scale and dtype, and an amax of its own."""
    like = other.copy()
    like.amax = torch.zeros_like(other.amax)
    return like


@pytest.mark.parametrize("gelu", ["erf", "tanh"])
def test_a_model_computes_the_same_with_and_without_these_kernels(
    gelu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GELU in FP8 must not change a bit, except in the gradient of its bias, which is summed in
    another order. The norm rounds a few numbers in another way. The large weights amplify this, but
    not to the error of FP8 itself.
    """
    from trainer.model import layer_te

    def quantizer_of_gelu(linear: Any) -> Any:
        return None if isinstance(linear, layer_te.NormLinear) else delayed_quantizer(linear)

    delayed_quantizer = layer_te.delayed_quantizer
    shape, results = replace(SHAPES["650m"], layers=3, gelu=gelu), []
    for numbers, used in (
        ("fp8-delayed", delayed_quantizer),
        ("fp8-delayed", quantizer_of_gelu),
        ("fp8-delayed", lambda _: None),
        ("bf16", lambda _: None),
    ):
        monkeypatch.setattr(layer_te, "delayed_quantizer", used)
        built, compute, _ = model(shape, "te", numbers)
        for seed in (13, 14, 15):  # the scales of the first step are 1
            for parameter in built.parameters():
                parameter.grad = None
            logits, grads = run(built, compute, row(seed=seed))
        results.append((logits, grads, dict(scaling_tensors(built))))
    both, only_gelu, neither, (exact, exact_grads, _) = results
    logits, grads, scaling = neither
    assert torch.equal(only_gelu[0], logits)
    assert error(both[0], logits) < 0.5 * error(logits, exact)
    for name, grad in grads.items():
        assert error(only_gelu[1][name], grad) < 0.01, name
        assert error(both[1][name], grad) < 0.5 * error(grad, exact_grads[name]), name
    for _, _, found in (both, only_gelu):
        assert found.keys() == scaling.keys()
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, scaling[name], rtol=0.1, atol=1e-6, msg=name)
