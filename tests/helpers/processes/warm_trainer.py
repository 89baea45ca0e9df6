"""Import the trainer, and parse a command line once.

The process that forks ranks imports this module. Parsing for the first time imports modules and
reads source files for the help texts, a tenth of a CPU second that each rank would need again.
"""

from __future__ import annotations

from trainer.config import parse
from trainer.train import main

__all__ = ["main"]

parse(["esm2-tiny", "--data", "data"])
