"""state.json: the part of a checkpoint that is not tensors. The type of each field is checked when
it is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from schemas.errors import CheckpointError
from schemas.untrusted_json import Count, decoded
from trainer.config import TrainOptions

STATE: Final = "state.json"
STATE_VERSION: Final = 1


class BestValidation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Best validation so far. Before the first one, loss is None and checkpoint is ""."""

    loss: float | None = None
    checkpoint: Annotated[str, msgspec.Meta(pattern=r"^(step-\d{8,})?$")] = ""


class RunState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of a run after a number of steps.

    tokens: tokens so far, without padding.
    applied: steps that were not skipped.
    sound: the loss of the last validation, if there was one, was finite.
    reader: `state_dict` of the reader.
    options: options of the run, with `auto` resolved.
    """

    version: int = STATE_VERSION
    step: Count
    tokens: Count
    applied: Count
    best: BestValidation
    sound: bool
    reader: dict[str, int | str]
    options: TrainOptions

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


def read_state(checkpoint: Path) -> RunState:
    """Read state.json of a checkpoint.

    Raises:
        CheckpointError: the file cannot be read, has another version, or has a field of a wrong
            type, which the message names.
    """
    path = checkpoint / STATE
    try:
        raw: Any = decoded(path.read_bytes(), object)
        if isinstance(raw, dict) and raw.get("version") != STATE_VERSION:
            raise CheckpointError(
                f"{path}: version {raw.get('version')!r}, this thdpack reads {STATE_VERSION}"
            )
        return msgspec.convert(raw, RunState)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
