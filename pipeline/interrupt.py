"""Ctrl-C, told to every thread of the process: only the main one gets the exception, and others may be waiting for a store."""

from __future__ import annotations

import threading
from types import FrameType
from typing import Final

INTERRUPTED: Final = threading.Event()


def interrupt(number: int, frame: FrameType | None) -> None:
    """What a signal does to the command line."""
    INTERRUPTED.set()
    raise KeyboardInterrupt
