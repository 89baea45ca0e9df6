"""How worker processes get memory from the system."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
"""Of glibc's malloc.h."""
_KEPT: Final = 512 << 20
_LARGEST: Final = 32 << 20
"""glibc takes no more: what is larger is mapped anew each time."""


@cache
def keep_memory() -> None:
    """From now on, have malloc keep what was freed, in one place for all threads.

    Tasks free and take tens of MB again and again; given back to the system, each page costs a fault and its zeroing: 5 % of a local build, 15 % of
    one on a store. A process keeps no more than it needed at its peak. Where the C library has no mallopt, nothing changes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for name, value in (
        (_ARENA_MAX, 1),
        (_MMAP_THRESHOLD, _LARGEST),
        (_TRIM_THRESHOLD, _KEPT),
        (_TOP_PAD, _LARGEST),
    ):
        mallopt(name, value)
