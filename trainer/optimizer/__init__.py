"""Optimizer steps and the learning rate."""

from trainer.optimizer.optimizer import Optimizer
from trainer.optimizer.schedule import learning_rate, with_warmup

__all__ = ["Optimizer", "learning_rate", "with_warmup"]
