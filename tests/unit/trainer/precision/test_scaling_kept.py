"""Validation does not change the state of FP8 delayed scaling.

tests/gpu/test_scaling_kept.py tests the same with Transformer Engine's own modules.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from tests.helpers.processes.runs import arguments
from trainer.config import parse
from trainer.distributed.topology import process_group
from trainer.monitoring.run_log import RunLog
from trainer.precision.delayed_scaling import preserve_scaling
from trainer.run import TrainingRun


class Noting(nn.Linear):
    """Module that records the largest value that it saw, as Transformer Engine's modules do.

    fp8_meta: scaling state. `begin` or the first forward pass creates it.
    """

    def begin(self) -> None:
        self.fp8_meta = {
            "scaling_fwd": SimpleNamespace(scale=torch.ones(1), amax_history=torch.zeros(16, 1))
        }

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "fp8_meta"):
            self.begin()
        newest = self.fp8_meta["scaling_fwd"].amax_history[0]
        torch.maximum(newest, x.abs().max(), out=newest)
        return super().forward(x)


def test_validation_adds_nothing_to_the_amax_history() -> None:
    model = nn.Sequential(Noting(2, 2))
    with torch.no_grad(), preserve_scaling(model):
        model(torch.full((1, 2), 100.0))
    history = model[0].fp8_meta["scaling_fwd"].amax_history
    assert not history.any()  # preserve_scaling also resets state that was created inside it
    model(torch.full((1, 2), 3.0))
    with torch.no_grad(), preserve_scaling(model):
        model(torch.full((1, 2), 100.0))
        assert float(history[0]) == 100.0
    # restored in place, because kernels keep the tensor's address
    assert model[0].fp8_meta["scaling_fwd"].amax_history is history
    assert float(history[0]) == 3.0


def test_a_run_that_validates_keeps_its_amax_history(many_shards: Path, tmp_path: Path) -> None:
    """One layer of the model records its largest values, as Transformer Engine's modules do."""
    options = parse(arguments(many_shards, tmp_path / "run"))
    noted = []
    with process_group() as topology, ExitStack() as stack:
        run = TrainingRun(options, topology, stack)
        dense = run.model.head.dense
        dense.fp8_meta = {
            "scaling_fwd": SimpleNamespace(scale=torch.ones(1), amax_history=torch.zeros(16, 1))
        }
        newest = dense.fp8_meta["scaling_fwd"].amax_history[0]

        def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            torch.maximum(newest, inputs[0].abs().max(), out=newest)
            noted.append(float(newest))

        dense.register_forward_pre_hook(note)
        run.validate(stack.enter_context(RunLog(options, topology, step=0)))
    assert max(noted) > 0
    assert float(newest) == 0
