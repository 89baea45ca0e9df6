"""Ctrl-C, told to every thread of the process: only the main one gets the exception, and others may be waiting for a store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED: Final = threading.Event()
_held_back = False


def interrupt(number: int, frame: FrameType | None) -> None:
    """What a signal does to the command line."""
    INTERRUPTED.set()
    if not _held_back:
        raise KeyboardInterrupt


@contextmanager
def held_back() -> Iterator[None]:
    """Raise nothing in here but by `look`: an exception between any two instructions may leave a lock of the standard library's taken for good.

    Raises:
        KeyboardInterrupt: on leaving, if there was one and nobody looked.
    """
    global _held_back
    _held_back = True
    try:
        yield
    finally:
        _held_back = False
    look()


def look() -> None:
    """Where an interrupt that was held back is raised.

    Raises:
        KeyboardInterrupt: there was one.
    """
    if INTERRUPTED.is_set():
        raise KeyboardInterrupt
