"""Muon: orthogonalization, the update, and the exchange of matrices among ranks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.helpers.models import SMALL, initialized
from tests.helpers.processes.ranks import Job
from trainer.config import OptimizerOptions
from trainer.optimizer import Optimizer
from trainer.optimizer.muon import MOMENTUM, ROW_DECAY, UPDATE
from trainer.optimizer.orthogonal import orthogonalized

EXCHANGE = """
import torch
import torch.distributed as dist
from trainer.distributed.matrix_exchange import MatrixExchange
from trainer.distributed.topology import process_group
with process_group() as topology:
    exchange = MatrixExchange(ranks=topology.world_size, group=dist.group.WORLD)
    for n in (1, 3, 4):
        everything = torch.arange(n * 8 * 5.0).view(n, 8, 5)
        mine = everything.chunk(topology.world_size, dim=1)[topology.rank]
        whole = exchange.whole(mine)
        share = -(-n // topology.world_size)
        owned = everything[topology.rank * share : (topology.rank + 1) * share]
        assert torch.equal(whole[: len(owned)], owned) and not whole[len(owned) :].any()
        assert torch.equal(exchange.rows(whole, n), mine)
"""


def conditioned(rows: int, columns: int, smallest: float) -> Tensor:
    """Return two random matrices, float64, whose singular values lie between `smallest` and 1."""
    generator = torch.Generator().manual_seed(rows)
    u, _, v = torch.linalg.svd(
        torch.randn(2, rows, columns, dtype=torch.float64, generator=generator),
        full_matrices=False,
    )
    values = torch.logspace(0, math.log10(smallest), min(rows, columns), dtype=torch.float64)
    return u @ torch.diag(values) @ v


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "columns"), [(48, 48), (32, 80), (80, 32)])
def test_orthogonalized_matrices_have_their_singular_vectors_and_values_near_1(
    rows: int, columns: int, dtype: torch.dtype
) -> None:
    matrices = conditioned(rows, columns, 0.05)
    found = orthogonalized(matrices.to(dtype)).double()
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.8
    assert values.max() < 1.2
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    # the distance to the polar factor is that of the singular values, and bf16's rounding
    assert (found - u @ v).norm() / (u @ v).norm() < 0.13


def test_the_scale_of_a_matrix_does_not_matter_and_zeros_stay_zeros() -> None:
    matrices = conditioned(16, 24, 0.1)
    torch.testing.assert_close(orthogonalized(matrices * 1e-9), orthogonalized(matrices))
    assert not orthogonalized(torch.zeros(1, 8, 8)).any()


def reference_update(name: str, update: Tensor) -> Tensor:
    """Orthogonalize one gradient, and for fused weights each of its three matrices."""
    if "qkv" not in name:
        return orthogonalized(update[None])[0]
    heads = update.view(SMALL.heads, 3, SMALL.head_size, -1)
    parts = [heads[:, part].reshape(SMALL.hidden_size, -1) for part in range(3)]
    each = [orthogonalized(part[None])[0].view(SMALL.heads, -1, update.shape[1]) for part in parts]
    return torch.stack(each, dim=1).reshape(update.shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_match_a_plain_loop_in_float64_and_a_step_with_a_nan_is_skipped(
    dtype: torch.dtype,
) -> None:
    """The loop updates one matrix at a time. Other parameters get AdamW's steps."""
    rate, decay = 1e-2, 0.1
    options = OptimizerOptions(optimizer="muon", weight_decay=decay, clip_norm=0.5)
    (muon, masters), (adam, adam_masters) = initialized(dtype), initialized(dtype)
    ours = Optimizer(muon, options, masters)
    others = Optimizer(adam, OptimizerOptions(weight_decay=decay, clip_norm=0.5), adam_masters)
    start = masters or {name: p.detach() for name, p in muon.named_weights()}
    weights = {
        name: value.double()
        for name, value in start.items()
        if value.ndim == 2 and name != "embedding"
    }
    assert len(weights) == 4 * SMALL.layers + 1
    mean = {name: torch.zeros_like(value) for name, value in weights.items()}
    squares = {name: torch.zeros(len(value), 1).double() for name, value in weights.items()}
    generator = torch.Generator().manual_seed(0)
    applied = 0
    for step in range(4):
        grads = {n: torch.randn(p.shape, generator=generator) for n, p in muon.named_weights()}
        for optimizer, model in ((ours, muon), (others, adam)):
            for name, parameter in model.named_weights():
                parameter.grad = grads[name].to(dtype, copy=True)
            bad = step == 2
            if bad:
                broken = dict(model.named_weights())["layers.0.proj.weight"].grad
                assert broken is not None
                broken[0, 0] = math.nan
            _, norm = optimizer.step(
                torch.tensor(rate),
                loss_sum=torch.tensor(1.0),
                count=torch.tensor(10.0),
                gradient_square=optimizer.gradients.square(),
            )
        if bad:
            continue
        applied += 1
        for name, weight in weights.items():
            grad = grads[name].to(dtype).double() / 10 * min(1.0, 0.5 / float(norm))
            mean[name] = MOMENTUM * mean[name] + (1 - MOMENTUM) * grad
            update = reference_update(name, (1 - MOMENTUM) * grad + MOMENTUM * mean[name])
            squares[name] = ROW_DECAY * squares[name] + (1 - ROW_DECAY) * update.square().mean(
                dim=1, keepdim=True
            )
            scale = (squares[name] / (1 - ROW_DECAY**applied)).sqrt()
            weight *= 1 - rate * decay
            weight -= rate * UPDATE * update / scale
    assert int(ours.applied) == applied == 3
    found, expected = dict(ours.named_tensors()), dict(others.named_tensors())
    for name, parameter in muon.named_weights():
        own = found[f"model.{name}"].double()
        if name in weights:
            # singular values below 1/1000 make an update sensitive to rounding, the others do not
            assert (own - weights[name]).abs().max() < 0.02 * rate
            assert (own - weights[name]).norm() < 1e-3 * rate * weights[name].numel() ** 0.5
        else:
            assert torch.equal(own, expected[f"model.{name}"].double())
        assert torch.equal(parameter.float(), found[f"model.{name}"].to(dtype).float())


def test_rows_of_many_matrices_are_exchanged_for_whole_matrices_and_back() -> None:
    Job(EXCHANGE, [], ranks=2).finish()
