"""Every option of a training run: typed, documented, and checked once.

This package does not import torch, so that `--help` is quick. Start reading at `options.py`.
"""

from trainer.config.checks import flag
from trainer.config.command_line import parse
from trainer.config.options import (
    Backend,
    ComputeOptions,
    DataOptions,
    OptimizerOptions,
    OutputOptions,
    Precision,
    Reshard,
    TrainOptions,
)
from trainer.config.presets import PRESETS

__all__ = [
    "PRESETS",
    "Backend",
    "ComputeOptions",
    "DataOptions",
    "OptimizerOptions",
    "OutputOptions",
    "Precision",
    "Reshard",
    "TrainOptions",
    "flag",
    "parse",
]
