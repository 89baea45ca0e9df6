"""Print messages of single ranks to standard error."""

from __future__ import annotations

import sys


def say(rank: int, text: str) -> None:
    """Write one line to standard error, with the number of the rank. Rank 0 speaks for the trainer.

    The line is written in one call. Where Python is unbuffered, as under torchrun, `print` writes
    the newline separately, and lines of two ranks that share a pipe run together.
    """
    sys.stderr.write(f"trainer, rank {rank}: {text}\n" if rank else f"trainer: {text}\n")
    sys.stderr.flush()
