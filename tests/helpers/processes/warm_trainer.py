"""Import the trainer, parse a command line once, and make one Arrow array.

The process that forks ranks imports this module. The first call of `parse` in a process takes 0.1 s
of CPU, because it imports modules and reads source files for the help texts. The first call of
`pa.array` takes 0.3 s, because it imports pandas, if pandas is installed. Forked ranks need not
repeat this work.
"""

from __future__ import annotations

import pyarrow as pa

import trainer.embed
import trainer.score
from trainer.config import parse
from trainer.train import main

__all__ = ["main", "trainer"]

parse(["esm2-tiny", "--data", "data"])
pa.array([0])
