"""Validation leaves delayed scaling's state as it is. Transformer Engine's own modules: tests/gpu/test_scaling_kept.py."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from trainer.delayed_scaling import scaling_kept


class Noting(nn.Linear):
    """Notes the largest value that it saw, as Transformer Engine's modules do. fp8_meta: there from the start, or from the first pass on."""

    def begin(self) -> None:
        self.fp8_meta = {"scaling_fwd": SimpleNamespace(scale=torch.ones(1), amax_history=torch.zeros(16, 1))}

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "fp8_meta"):
            self.begin()
        newest = self.fp8_meta["scaling_fwd"].amax_history[0]
        torch.maximum(newest, x.abs().max(), out=newest)
        return super().forward(x)


def test_largest_values_of_a_validation_stay_out_of_the_history() -> None:
    model = nn.Sequential(Noting(2, 2))
    with torch.no_grad(), scaling_kept(model):
        model(torch.full((1, 2), 100.0))
    history = model[0].fp8_meta["scaling_fwd"].amax_history
    assert not history.any()  # it began in there
    model(torch.full((1, 2), 3.0))
    with torch.no_grad(), scaling_kept(model):
        model(torch.full((1, 2), 100.0))
        assert float(history[0]) == 100.0
    assert model[0].fp8_meta["scaling_fwd"].amax_history is history  # in place: kernels keep its address
    assert float(history[0]) == 3.0
