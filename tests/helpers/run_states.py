"""State of a run after its first step, for tests of checkpoints."""

from __future__ import annotations

from trainer.checkpoints.run_state import BestValidation, RunState
from trainer.config import TrainOptions

FIRST_STEP = RunState(
    step=1,
    tokens=0,
    applied=1,
    best=BestValidation(),
    sound=True,
    reader={},
    options=TrainOptions(),
)
