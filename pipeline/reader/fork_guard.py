"""After a fork, notify objects that have threads or locks.

A forked process has only the thread that called fork. A lock that another thread held stays locked
in it for ever.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ForkedReaderError(RuntimeError):
    """A reader is used in a fork of its process, where it would yield the parent's buckets
    again."""


class ForkAware(Protocol):
    def after_fork(self) -> None:
        """Runs in the new process before anything else does."""


_FORK_AWARE: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def call_after_fork(listener: ForkAware) -> None:
    """Call `listener.after_fork` in every fork, as long as the object exists."""
    _FORK_AWARE.add(listener)


def _call_all() -> None:
    for listener in list(_FORK_AWARE):
        listener.after_fork()


os.register_at_fork(after_in_child=_call_all)
