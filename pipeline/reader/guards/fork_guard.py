"""After a fork, notify the objects that have threads or locks.

A forked process has only the thread that called fork. If another thread held a lock during the
fork, the lock stays locked forever in the new process.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ForkedReaderError(RuntimeError):
    """A reader is used in a forked process, where it would repeat the parent's buckets."""


def opened_elsewhere() -> ForkedReaderError:
    """Return the error for a reader that is used in a forked process."""
    return ForkedReaderError(
        "this reader was opened in another process, and both processes would get the same buckets: "
        "open a reader in each process, and count all these processes in rank and world_size"
    )


class ForkAware(Protocol):
    def after_fork(self) -> None:
        """Prepare the object for use in the new process. This runs before any other code there."""


_FORK_AWARE: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def call_after_fork(listener: ForkAware) -> None:
    """Call `listener.after_fork` after every fork, as long as `listener` exists."""
    _FORK_AWARE.add(listener)


def _call_all() -> None:
    for listener in list(_FORK_AWARE):
        listener.after_fork()


os.register_at_fork(after_in_child=_call_all)
