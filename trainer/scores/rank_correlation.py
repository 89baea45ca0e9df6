"""Spearman's rank correlation."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def spearman(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the rank correlation of two columns: Pearson's correlation of their ranks. Equal
    values get the average of their ranks.

    Args:
        x, y: float64[N], finite values.
    Returns:
        A number from -1 to 1; NaN if all values of a column are equal, or if N is less than 2.
    """
    if x.size < 2:
        return math.nan
    first, second = (ranks(column) - (x.size + 1) / 2 for column in (x, y))
    scale = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / scale if scale else math.nan


def correlated(scores: NDArray[np.float64], measured: NDArray[np.float64]) -> tuple[float, int]:
    """Return Spearman's correlation over the mutants with a finite measured value, and their
    number. The correlation is NaN if it does not exist, or if a score is not finite.
    """
    known = np.isfinite(measured)
    if not np.isfinite(scores[known]).all():
        return math.nan, int(known.sum())
    return spearman(scores[known], measured[known]), int(known.sum())


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each value, counted from 1. Equal values get the average of their ranks.

    Returns:
        float64[N].
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    average: NDArray[np.float64] = (last - (counts - 1) / 2)[place]
    return average
