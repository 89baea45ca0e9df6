"""Layers that stay in bf16 in an FP8 run, and weights that are kept in FP8."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.gpu.random_models import GPU, SHAPES, error, model, row, run
from trainer import precision
from trainer.config import ComputeOptions, OptimizerOptions
from trainer.model.esm2 import Esm2, SequenceLayout
from trainer.optimizer import Optimizer

THREE = replace(SHAPES["650m"], layers=3)


def with_weights(module: nn.Module) -> list[nn.Module]:
    """Return Transformer Engine's modules that have their own weights."""
    return [
        found
        for found in module.modules()
        if hasattr(found, "fp8_meta") and next(found.parameters(recurse=False), None) is not None
    ]


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("numbers", ["fp8-delayed", "fp8-current"])
def test_layers_that_stay_in_bf16_compute_as_in_a_bf16_run(numbers: str, recompute: str) -> None:
    inputs = row(seed=13)
    exact_model, exact_compute, _ = model(THREE, "te", "bf16")
    exact, _ = run(exact_model, exact_compute, inputs)
    every, _ = run(*model(THREE, "te", numbers)[:2], inputs)
    _, kept_grads = run(*model(THREE, "te", numbers, precision_layers="inner:1")[:2], inputs)
    built, compute, _ = model(THREE, "te", numbers, precision_layers="inner:1", recompute=recompute)
    seen: list[tuple[tuple[Any, ...], tuple[Tensor, ...]]] = []
    for layer in built.layers:
        layer.register_forward_hook(lambda _, inputs, output: seen.append((inputs, output)))
    found, grads = run(built, compute, inputs)
    print(
        numbers, recompute, "all layers", error(every, exact), "the inner one", error(found, exact)
    )
    assert 0 < error(found, exact) < 0.9 * error(every, exact)
    assert len(seen) == 3  # recomputation does not call the hook
    for number, same in enumerate([True, False, True]):
        given, output = seen[number]
        assert all(map(torch.equal, exact_model.layers[number](*given), output)) is same, number
    assert [[module.fp8 for module in with_weights(layer)] for layer in built.layers] == [
        [False] * 4,
        [True] * 4,
        [False] * 4,
    ]
    assert [
        ["scaling_fwd" in module.fp8_meta for module in with_weights(layer)]
        for layer in built.layers
    ] == [[False] * 4, [True] * 4, [False] * 4]
    for name, kept_grad in kept_grads.items():
        assert error(grads[name], kept_grad) < 2e-2, name


@pytest.mark.parametrize("gelu", ["erf", "tanh"])
@pytest.mark.parametrize("numbers", ["fp8-delayed", "fp8-current", "fp8-block"])
def test_fp8_weights_compute_like_weights_that_are_cast_in_each_pass(
    numbers: str, gelu: str
) -> None:
    inputs, shape = row(seed=14), replace(SHAPES["650m"], gelu=gelu)
    results = []
    for quantized in (False, True):
        built, compute, masters = model(shape, "te", numbers, quantized_init=quantized)
        with torch.no_grad():
            for name, parameter in built.named_weights():
                assert precision.is_quantized(parameter) is (
                    quantized and name.startswith("layers.") and parameter.ndim == 2
                ), name
                # both models get numbers that bf16 represents exactly
                parameter.copy_(masters[name].bfloat16().float())
        results.append(run(built, compute, inputs))
    (expected, expected_grads), (found, grads) = results
    print(
        numbers,
        gelu,
        error(found, expected),
        max(error(grads[name], expected_grads[name]) for name in grads),
    )
    assert error(found, expected) < 1e-6
    assert grads.keys() == expected_grads.keys()
    for name in expected_grads:
        assert error(grads[name], expected_grads[name]) < 2e-2, name


def test_fp8_weights_follow_their_master_weights() -> None:
    built, compute, masters = model(SHAPES["650m"], "te", "fp8-current", quantized_init=True)
    optimizer = Optimizer(built, OptimizerOptions(), masters)
    ids, sequences, labels = row(seed=15)
    with precision.autocast(compute, GPU, sharded=False):
        logits = built(ids, sequences)
    loss = F.cross_entropy(logits, labels, reduction="sum")
    loss.backward()
    before = {name: p.detach().float().clone() for name, p in built.named_weights()}
    count = (labels >= 0).sum().double()
    optimizer.step(
        torch.tensor(1e-2, device=GPU),
        loss_sum=loss.detach().double(),
        count=count,
        gradient_square=optimizer.gradients.square().double(),
    )
    assert int(optimizer.applied) == 1
    saved = dict(optimizer.named_tensors())
    for name, parameter in built.named_weights():
        master = saved[f"model.{name}"]
        assert not torch.equal(parameter.detach().float(), before[name]), name
        if precision.is_quantized(parameter):
            # rounding to e4m3 has a relative rms error of 2.6 %
            assert error(parameter.detach().float(), master) < 0.04, name
        else:
            assert torch.equal(parameter, master.bfloat16()), name


def test_a_step_with_fp8_weights_needs_less_memory_than_with_bf16_weights() -> None:
    """A bf16 weight takes 2 bytes, and a step adds its FP8 copy. An FP8 weight and its
    transpose together take only 2 bytes.
    """
    shape, inputs = replace(SHAPES["650m"], layers=8), row(seed=16)
    weights = 8 * (4 * 1280 * 1280 + 2 * 1280 * 5120)
    peaks = []
    for quantized in (False, True):
        gc.collect()
        before = torch.cuda.memory_allocated()
        built, compute = model(shape, "te", "fp8-current", quantized_init=quantized)[:2]
        for _ in range(2):
            built.zero_grad(set_to_none=True)
            gc.collect()
            torch.cuda.reset_peak_memory_stats()
            run_quietly(built, compute, inputs)
        peaks.append((torch.cuda.max_memory_allocated() - before) / weights)
        del built
    print("peak memory in bytes per weight:", peaks)
    assert peaks[1] < peaks[0] - 0.5


def run_quietly(
    built: Esm2, compute: ComputeOptions, inputs: tuple[Tensor, SequenceLayout, Tensor]
) -> None:
    """Do the same as `run` without copies of logits and gradients."""
    ids, sequences, labels = inputs
    with precision.autocast(compute, GPU, sharded=False):
        logits = built(ids, sequences)
    F.cross_entropy(logits, labels, reduction="sum").backward()
