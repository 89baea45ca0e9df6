"""Say why a checkpoint could not be saved or loaded, and what to do about it."""

from __future__ import annotations

import errno
from typing import Final

import torch.distributed.checkpoint as dcp

_MAKE_ROOM: Final = {
    errno.ENOSPC: "make room on this disk",
    errno.EDQUOT: "make room within your quota of this disk",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
}
"""Remedies for errors of a disk, by errno."""


def reason(error: BaseException) -> str:
    """Return why a save or a load failed: the error of the failed rank with the smallest number."""
    rank, error = _first_failure(error)
    if rank:
        return f"rank {rank}: {reason(error)}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def advice(error: BaseException) -> str:
    """Return what to do about a save that failed; "" if nothing is known."""
    _, error = _first_failure(error)
    known = _MAKE_ROOM.get(error.errno or 0) if isinstance(error, OSError) else None
    return f": {known}" if known else ""


def _first_failure(error: BaseException) -> tuple[int, BaseException]:
    """Return the failed rank with the smallest number, and its error."""
    rank = 0
    while isinstance(error, dcp.api.CheckpointException) and error.failures:
        rank, (error, _) = min(error.failures.items())
    return rank, error
