"""state.json in a checkpoint: the state of the run, except its tensors. Reading the file checks the
type of each field.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from schemas.errors import CheckpointError
from schemas.untrusted_json import Count, Hash, decoded
from trainer.config import TrainOptions

STATE: Final = "state.json"
STATE_VERSION: Final = 3
_READABLE: Final = (1, 2, STATE_VERSION)
"""Versions that can be read. In version 1, --cuda-graph is a boolean, and --data is one string.
Versions 1 and 2 lack `manifests`."""


class BestValidation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Best validation so far.

    loss: loss of this validation; None before the first validation with a finite loss.
    checkpoint: name of the checkpoint of the same step; "" if `loss` is None.
    """

    loss: float | None = None
    checkpoint: Annotated[str, msgspec.Meta(pattern=r"^(step-\d{8,})?$")] = ""

    @property
    def step(self) -> int:
        """Step of this validation; 0 if `loss` is None."""
        return int(self.checkpoint.removeprefix("step-") or 0)


class RunState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of a run.

    version: version of this format.
    step: number of steps so far.
    tokens: number of tokens so far, without padding.
    applied: number of steps that were not skipped.
    best: best validation so far.
    sound: False if the loss of the last validation was not finite.
    reader: `state_dict` of the reader.
    manifests: digest of the manifest of each dataset, in the order of --data; () if an earlier
        version wrote the state.
    options: options of the run, with `auto` resolved.
    """

    version: int = STATE_VERSION
    step: Count
    tokens: Count
    applied: Count
    best: BestValidation
    sound: bool
    reader: dict[str, int | str]
    manifests: tuple[Hash, ...] = ()
    options: TrainOptions

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


def read_state(checkpoint: Path) -> RunState:
    """Read state.json of a checkpoint.

    Raises:
        CheckpointError: the file cannot be read, has another version, or has a field of a wrong
            type. The message names the field.
    """
    path = checkpoint / STATE
    try:
        raw: Any = decoded(path.read_bytes(), object)
        if isinstance(raw, dict) and raw.get("version") not in _READABLE:
            raise CheckpointError(
                f"{path} has version {raw.get('version')!r}, but this thdpack reads versions up to "
                f"{STATE_VERSION}: resume with the thdpack that wrote it"
            )
        return msgspec.convert(_upgraded(raw), RunState)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _upgraded(raw: Any) -> Any:
    """Convert the content of state.json from an earlier version to the present version. Fields of a
    wrong type are not changed here. `read_state` refuses them later.
    """
    if not isinstance(raw, dict) or raw.get("version") not in _READABLE:
        return raw
    if raw["version"] != 1:
        return {**raw, "version": STATE_VERSION}
    options = raw.get("options")
    if isinstance(options, dict):
        compute, data = options.get("compute"), options.get("data")
        if isinstance(compute, dict) and isinstance(compute.get("cuda_graph"), bool):
            graph = "on" if compute["cuda_graph"] else "off"
            options = {**options, "compute": {**compute, "cuda_graph": graph}}
        if isinstance(data, dict) and isinstance(data.get("data"), str):
            options = {**options, "data": {**data, "data": [data["data"]]}}
    return {**raw, "version": STATE_VERSION, "options": options}
