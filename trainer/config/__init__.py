"""Every option of a training run: typed, documented, and checked once.

This package does not import torch, so that `--help` is quick. Start reading at `options.py`.
"""

from schemas.text.option_checks import flag
from trainer.config.auto import AUTO
from trainer.config.command_line import parse
from trainer.config.compute_options import Backend, ComputeOptions, Precision, Reshard, Shard
from trainer.config.options import DataOptions, OptimizerOptions, OutputOptions, TrainOptions
from trainer.config.presets import PRESETS

__all__ = [
    "AUTO",
    "PRESETS",
    "Backend",
    "ComputeOptions",
    "DataOptions",
    "OptimizerOptions",
    "OutputOptions",
    "Precision",
    "Reshard",
    "Shard",
    "TrainOptions",
    "flag",
    "parse",
]
