"""Messages of a rank on standard error."""

from __future__ import annotations

import sys


def say(rank: int, text: str) -> None:
    """Write one line to standard error. It begins with "trainer, rank N:", or with "trainer:" for
    rank 0.

    The line is written in one call. If Python is unbuffered (torchrun does that), `print` writes
    the newline separately, and lines of two ranks that share a pipe are mixed.
    """
    sys.stderr.write(f"trainer, rank {rank}: {text}\n" if rank else f"trainer: {text}\n")
    sys.stderr.flush()
