"""Memory of worker processes."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
"""Parameters of glibc's malloc.h."""
_KEPT: Final = 512 << 20
_LARGEST: Final = 32 << 20
"""Largest value in bytes that glibc accepts for the mmap threshold. malloc requests each block
above the threshold from the kernel, and returns it when the block is freed."""


@cache
def keep_memory() -> None:
    """Make malloc keep freed memory, in one arena for all threads.

    Tasks free and allocate tens of MB again and again. If malloc returned the memory to the system,
    the kernel would have to map and zero the pages again. This would take 5 % of the time of a
    local build, and 15 % of a build on a store. A process never keeps more memory than its peak. If
    the C library has no mallopt, this function does nothing.
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
