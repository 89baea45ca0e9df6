"""Learning-rate schedules and optimizer steps."""

from __future__ import annotations

import math

import pytest
import torch

from tests.helpers.models import initialized
from trainer.config import PRESETS, OptimizerOptions
from trainer.optimizer import Optimizer, learning_rate


def test_the_default_schedule_is_the_published_one() -> None:
    options = PRESETS["esm2-650m"][1].optimizer
    assert learning_rate(2_000, options) == pytest.approx(4e-4)
    assert learning_rate(0, options) == pytest.approx(4e-4 / 2_001)
    assert learning_rate(450_000, options) == pytest.approx(4e-5)
    assert learning_rate(499_999, options) == pytest.approx(4e-5)
    assert learning_rate(226_000, options) == pytest.approx(4e-4 * 0.55)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
def test_schedules_rise_to_the_peak_once_and_fall_to_the_end(schedule: str) -> None:
    options = OptimizerOptions(steps=1_000, warmup_steps=100, schedule=schedule, learning_rate=1.0)  # type: ignore[arg-type]
    rates = [learning_rate(step, options) for step in range(1_000)]
    assert rates[:101] == sorted(rates[:101])
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert max(rates) == 1.0
    assert rates[-1] == pytest.approx(0.1, abs=0.01)
    if schedule == "wsd":
        assert rates[100] == rates[899] == 1.0


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
def test_a_warm_up_too_long_for_the_schedule_is_refused(schedule: str) -> None:
    with pytest.raises(
        ValueError, match="warmup-steps is 950, too long for a schedule of 1000 steps"
    ):
        OptimizerOptions(steps=1_000, warmup_steps=950, schedule=schedule)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_match_adamw_on_clipped_mean_gradients_and_a_step_with_a_nan_loss_is_skipped(
    dtype: torch.dtype, numerics: None
) -> None:
    """Compare with AdamW in float64.

    The tolerance allows one rounding of each parameter per step, and a relative error of 1e-3 in
    each update.
    """
    built, masters = initialized(dtype)
    rate, steps = 1e-3, 4
    start = masters or {name: p.detach() for name, p in built.named_weights()}
    reference = {name: value.double().requires_grad_() for name, value in start.items()}
    matrices, vectors = (
        [t for t in reference.values() if (t.ndim > 1) is matrix] for matrix in (True, False)
    )
    adam = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=rate,
        betas=(0.9, 0.98),
        eps=1e-8,
        foreach=False,
    )
    ours = Optimizer(built, OptimizerOptions(weight_decay=0.1, clip_norm=0.5), masters)
    for step in range(steps):
        halves = {
            name: [torch.randn_like(p) for _ in range(2)] for name, p in built.named_weights()
        }
        for i in range(2):
            for name, parameter in built.named_weights():
                if dtype == torch.float32 and i:
                    parameter.grad += halves[name][i]  # as autograd does
                else:
                    parameter.grad = halves[name][i].clone()
            ours.gradients.add()
        for name, value in reference.items():
            value.grad = (halves[name][0].double() + halves[name][1].double()) / 100
        bad = step == 2
        before = {name: p.detach().clone() for name, p in built.named_weights()}
        loss_sum, count = torch.tensor(math.nan if bad else 300.0), torch.tensor(100.0)
        loss, norm = ours.step(
            rate, loss_sum=loss_sum, count=count, gradient_square=ours.gradients.square()
        )
        if bad:
            assert int(ours.bad) == 1
            assert all(torch.equal(before[name], p) for name, p in built.named_weights())
            continue
        expected = torch.nn.utils.clip_grad_norm_(list(reference.values()), 0.5)
        # the norm sums 10⁵ squares pairwise in fp32: its error is a few roundings of 6e-8
        assert norm == pytest.approx(float(expected), rel=1e-6)
        assert float(loss) == 3.0
        adam.step()
    assert (int(ours.applied), int(ours.bad)) == (3, 0)
    found = dict(ours.named_tensors())
    for name, value in reference.items():
        torch.testing.assert_close(
            found[f"model.{name}"].double(),
            value.detach(),
            rtol=steps * 2**-24,
            atol=steps * rate / 1000,
        )
    for name, parameter in built.named_weights():
        assert torch.equal(parameter, found[f"model.{name}"].to(dtype))


def test_a_step_with_a_gradient_that_is_not_finite_is_skipped() -> None:
    built, masters = initialized()
    ours = Optimizer(built, OptimizerOptions(), masters)
    before = built.embedding.detach().clone()
    for parameter in built.parameters():
        parameter.grad = torch.ones_like(parameter)
    built.embedding.grad[5, 5] = math.inf  # type: ignore[index]
    ours.step(
        1e-3,
        loss_sum=torch.tensor(1.0),
        count=torch.tensor(1.0),
        gradient_square=ours.gradients.square(),
    )
    assert torch.equal(built.embedding, before)
    assert int(ours.bad) == 1
