"""Handle Ctrl-C in every thread of the process.

Python raises KeyboardInterrupt only in the main thread, but other threads may be waiting for a
store and must stop, too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED: Final = threading.Event()
_deferred = False


def interrupt(number: int, frame: FrameType | None) -> None:
    """Signal handler of the command line."""
    INTERRUPTED.set()
    if not _deferred:
        raise KeyboardInterrupt


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer interrupts: inside this context, only `raise_if_interrupted` raises them.

    Otherwise, an interrupt could be raised between any two instructions, and leave a lock of the
    standard library locked forever.

    Raises:
        KeyboardInterrupt: at the end of the context, if an interrupt was not yet raised.
    """
    global _deferred
    _deferred = True
    try:
        yield
    finally:
        _deferred = False
    raise_if_interrupted()


def raise_if_interrupted() -> None:
    """Raise a deferred interrupt.

    Raises:
        KeyboardInterrupt: an interrupt was deferred.
    """
    if INTERRUPTED.is_set():
        raise KeyboardInterrupt
