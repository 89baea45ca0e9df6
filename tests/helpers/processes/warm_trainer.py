"""Import the trainer, and parse a command line once.

The process that forks ranks imports this module. The first call of `parse` in a process takes 0.1 s
of CPU, because it imports modules and reads source files for the help texts. Forked ranks need not
repeat this work.
"""

from __future__ import annotations

from trainer.config import parse
from trainer.train import main

__all__ = ["main"]

parse(["esm2-tiny", "--data", "data"])
