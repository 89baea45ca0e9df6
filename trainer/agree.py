"""What all ranks have to know alike before a run begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from schemas.errors import ThdpackError
from trainer.hashes import CheckpointError
from trainer.parallel import Parallel


def from_main(parallel: Parallel, ask: Callable[[], Any]) -> Any:
    """Return what rank 0 finds, on all ranks. To be called by all ranks.

    Raises:
        CheckpointError, ValueError: rank 0 found an error.
    """
    box: list[Any] = [None]
    if parallel.is_main:
        try:
            box = [ask()]
        except CheckpointError as error:
            box = [CheckpointError(str(error))]
        except (ValueError, OSError, ThdpackError) as error:
            box = [ValueError(str(error))]
    dist.broadcast_object_list(box, src=0, group=parallel.checkpoint_group)
    if isinstance(box[0], Exception):
        raise box[0]
    return box[0]
