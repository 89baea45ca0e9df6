"""Spearman's rank correlation equals scipy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from trainer.scores.rank_correlation import correlated, ranks, spearman

TIED = st.integers(-3, 3).map(float)
"""Few values, so that many are equal."""


@given(st.lists(st.tuples(TIED, TIED | st.floats(-1e300, 1e300)), min_size=2, max_size=40))
def test_the_correlation_equals_scipys(pairs: list[tuple[float, float]]) -> None:
    x, y = np.array(pairs).T
    assert (ranks(y) == rankdata(y)).all()
    if np.unique(x).size < 2 or np.unique(y).size < 2:
        assert math.isnan(spearman(x, y))
    else:
        assert spearman(x, y) == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)


def test_missing_measurements_are_left_out_and_scores_that_are_not_finite_give_nan() -> None:
    measured = np.array([1.0, np.nan, 2.0, 4.0, np.inf])
    scores = np.array([1.0, np.nan, 3.0, 2.0, np.nan])
    assert correlated(scores, measured) == (pytest.approx(0.5), 3)
    rho, count = correlated(np.full(5, np.nan), measured)
    assert (math.isnan(rho), count) == (True, 3)
