"""A checkpoint whose tensors differ in shape from those of the run is refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from schemas.errors import CheckpointError
from tests.helpers.run_states import FIRST_STEP
from trainer.checkpoints.checkpoint import Checkpoints
from trainer.checkpoints.run_lock import RunLock
from trainer.distributed.topology import process_group

HISTORY = "scaling.layers.0.proj.scaling_fwd.amax_history"


def test_tensors_whose_shapes_differ_from_those_of_the_run_are_refused_with_a_reason(
    tmp_path: Path,
) -> None:
    saved = {"model.a": torch.ones(3), HISTORY: torch.ones(16, 1), "random.cpu.0": torch.ones(5)}
    with process_group() as topology:
        checkpoints = Checkpoints(tmp_path, topology, RunLock(tmp_path / "lock"), keep_last=1)
        checkpoints.save(FIRST_STEP, saved)
        checkpoints.wait()
        for name, shape, message in (
            ("model.a", (4,), "another model"),
            (
                HISTORY,
                (32, 1),
                "another version of Transformer Engine wrote the checkpoint. "
                "Resume with that version, or with --precision bf16",
            ),
            ("random.cpu.0", (6,), "another version of torch wrote the"),
        ):
            wanted = {key: torch.zeros_like(tensor) for key, tensor in saved.items()} | {
                name: torch.zeros(shape)
            }
            with pytest.raises(CheckpointError, match=message):
                checkpoints.load(
                    Checkpoints.name(1), {"model.a": wanted.pop("model.a")}, optional=wanted
                )
            assert not any(tensor.any() for tensor in wanted.values())
        wanted = {key: torch.zeros_like(tensor) for key, tensor in saved.items()}
        checkpoints.load(Checkpoints.name(1), {"model.a": wanted["model.a"]}, optional=wanted)
        assert all(torch.equal(wanted[key], saved[key]) for key in saved)
