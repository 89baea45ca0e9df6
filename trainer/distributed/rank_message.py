"""Messages of single ranks on standard error."""

from __future__ import annotations

import sys


def say(rank: int, text: str) -> None:
    """Write one line to standard error, with the rank's name; rank 0 speaks for the trainer.

    In one write: `print` writes the newline by itself where Python is unbuffered, as under torchrun, and lines of two ranks that
    share a pipe then run together.
    """
    sys.stderr.write(f"trainer, rank {rank}: {text}\n" if rank else f"trainer: {text}\n")
    sys.stderr.flush()
