"""Objects with threads or locks, told when they find themselves in a fork of the process that made them.

A fork has no thread but the one that forked, and a lock that another thread held stays locked in it for ever.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ForkedReaderError(RuntimeError):
    """A reader is used in a fork of the process that opened it: each process would get the same buckets."""


class Told(Protocol):
    def after_fork(self) -> None:
        """Called in the new process, before anything else runs there."""


_TOLD: weakref.WeakSet[Told] = weakref.WeakSet()


def tell_after_fork(anything: Told) -> None:
    """Have an object told of forks for as long as it lives."""
    _TOLD.add(anything)


def _tell() -> None:
    for each in list(_TOLD):
        each.after_fork()


os.register_at_fork(after_in_child=_tell)
