"""Estimates in a report: the cost of training, and the size of a dataset that is not built yet."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.models import FEW_EPOCHS, MOST_EPOCHS


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetRow:
    """Training time of one model at one precision. A whole run has as many tokens as the training
    run that the model's authors published.

    preset: name of the model
    tokens_per_second: measured throughput of one GPU, in tokens/s without padding
    run_tokens: number of tokens in a whole run: number of steps × tokens per step
    epochs: number of epochs in a whole run
    epoch_gpu_hours, run_gpu_hours: GPU-hours of one epoch and of a whole run, on one GPU
    source: description of the measurement of `tokens_per_second`
    """

    preset: str
    precision: str
    tokens_per_second: float
    run_tokens: int
    epochs: float
    epoch_gpu_hours: float
    run_gpu_hours: float
    source: str

    @property
    def few_epochs_gpu_hours(self) -> float:
        """GPU-hours of FEW_EPOCHS epochs on one GPU."""
        return FEW_EPOCHS * self.epoch_gpu_hours


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Cost of training on the train split.

    tokens: number of tokens in one epoch
    gpu: name of the GPU on which throughput was measured
    rows: a row for each pair of model and precision; empty if `tokens` is 0
    """

    tokens: int
    gpu: str
    rows: tuple[BudgetRow, ...]

    @property
    def is_small(self) -> bool:
        """True if a whole run would need more than MOST_EPOCHS epochs for every model."""
        return all(row.epochs > MOST_EPOCHS for row in self.rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Predicted result of `thdpack preprocess`.

    shards, buckets: number of shards and number of buckets, over all splits
    fill: number of real tokens divided by the number of tokens that the buckets have room for
    slots: number of sequences that `cu_seqlens` of a bucket has room for
    bytes: size on disk of the shards and records/ together
    """

    shards: int
    buckets: int
    fill: float
    slots: int
    bytes: int
