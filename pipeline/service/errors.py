"""Errors inside the service."""

from __future__ import annotations

from schemas.errors import ThdpackError


class RetryError(ThdpackError):
    """A step failed, perhaps only temporarily: for example, a disk is full, or a store does not
    answer. The service repeats the step after a pause.

    busy: True if another process writes the dataset
    """

    def __init__(self, message: str, *, busy: bool = False) -> None:
        super().__init__(message)
        self.busy = busy


class StopRequestedError(Exception):
    """The service was asked to stop."""
