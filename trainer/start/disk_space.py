"""Compare the size of a run's checkpoints with the free space of its disk, before the run starts.

Without this check, a run finds out after its first hours of training that it cannot be saved.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from pipeline.storage.atomic_write import nearest_existing
from schemas.errors import CheckpointError
from schemas.text.byte_size import megabytes
from schemas.text.phrases import plural
from trainer.checkpoints.atomic_write import PARTIAL
from trainer.checkpoints.latest import names
from trainer.config import TrainOptions

_BYTES: Final = {"adamw": 12, "muon": 8}
"""Bytes of a checkpoint for each parameter, at least: float32 weights and, with AdamW, two moments.
Muon has one moment for most parameters."""


def check_disk_space(options: TrainOptions, checkpoints: Path, *, step: int) -> str:
    """Refuse a run whose next checkpoint cannot fit on the disk.

    Return a note if this checkpoint fits, but not all that the run will keep; else "".

    Args:
        checkpoints: folder of the run's checkpoints. It need not exist.
        step: number of steps that the run has done.
    Raises:
        CheckpointError: the disk has less free space than one checkpoint needs.
    """
    steps, output = options.optimizer.steps - step, options.output
    if steps <= 0:
        return ""
    disk = shutil.disk_usage(nearest_existing(checkpoints))
    if not disk.total:  # some network file systems do not know their size
        return ""
    size = options.model.parameters * _BYTES[options.optimizer.optimizer]
    free = disk.free + _left_over(checkpoints)
    said = f"the disk has {megabytes(free)} of free space, but "
    if free < size:
        raise CheckpointError(
            f"{output.out}: {said}a checkpoint of this model needs {megabytes(size)}: make room, "
            "or choose an --out on another disk"
        )
    existing = len(names(checkpoints))
    saves = 1 + sum(steps // n for n in (output.checkpoint_every, output.validate_every) if n)
    # those that are kept, the one of the best validation, and the one that is being written
    more = min(output.keep_last + 2 - existing, saves)
    if free >= more * size:
        return ""
    needed = f"{megabytes(more * size)} for {plural(more, 'checkpoint')}"
    return (
        f"warning: {said}this run needs up to {needed}: "
        "make room, give a smaller --keep-last, or choose an --out on another disk"
    )


def _left_over(checkpoints: Path) -> int:
    """Return the bytes of unfinished checkpoints, which the run removes when it starts."""
    files = (path for path in checkpoints.glob(f"*{PARTIAL}/*") if path.is_file())
    return sum(path.stat().st_size for path in files)
