"""Validation does not change the FP8 scales and amax histories in Transformer Engine's modules."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import torch

from tests.gpu.runs_8m import arguments_8m
from trainer import precision
from trainer.config import parse
from trainer.distributed.topology import process_group
from trainer.monitoring.run_log import RunLog
from trainer.run import TrainingRun
from trainer.train import train_step


def test_validation_changes_no_fp8_scale_and_no_amax_history(dataset: Path, tmp_path: Path) -> None:
    with process_group() as topology, ExitStack() as stack:
        run = TrainingRun(
            parse(arguments_8m(dataset, tmp_path, "fp8-delayed", 30)), topology, stack
        )
        report = stack.enter_context(RunLog(run.options, topology, step=0))
        for _ in range(2):
            train_step(run, run.feed, 1e-4)
        before = {name: tensor.clone() for name, tensor in precision.scaling_tensors(run.model)}
        run.validate(report)
        after = dict(precision.scaling_tensors(run.model))
        assert before
        assert not [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
