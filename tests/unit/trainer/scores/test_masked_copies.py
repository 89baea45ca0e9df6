"""Copies of windows that own one residue each, and how their results are merged."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.inference.parts import merged
from trainer.inference.windows import Window, one_residue_each
from trainer.scores.likelihood import likelihood_results


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=6), st.integers(1, 9))
def test_the_pieces_have_each_owned_residue_once_in_order(
    owned: list[tuple[int, int]], pieces: int
) -> None:
    windows = [
        Window(
            tokens=np.zeros(12, dtype=np.uint8),
            record=record,
            start=0,
            own_begin=begin,
            own_end=begin + count,
        )
        for record, (begin, count) in enumerate(owned)
    ]
    found = [
        copy
        for piece in range(pieces)
        for copy in one_residue_each(windows, piece=piece, pieces=pieces)
    ]
    assert all(copy.own_end == copy.own_begin + 1 for copy in found)
    assert [(copy.record, copy.own_begin) for copy in found] == [
        (window.record, place)
        for window in windows
        for place in range(window.own_begin, window.own_end)
    ]


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 6))), st.randoms(use_true_random=False))
def test_merged_results_keep_sums_and_means_and_are_one_row_for_each_run_of_residues(
    residues: set[tuple[int, int]], shuffle: Random
) -> None:
    rows = [*residues, (9, 9)]
    shuffle.shuffle(rows)
    values = [float(record * 10 + first) for record, first in rows]
    columns = [
        pa.array([record for record, _ in rows], pa.int64()),
        pa.array([first for _, first in rows], pa.int32()),
        pa.array([1] * len(rows), pa.int32()),
        *(pa.array(values) for _ in range(2)),
    ]
    found = merged(columns, likelihood_results(masked=True))
    assert [column.type for column in found] == [column.type for column in columns]
    covered = []
    for record, first, count, total, mean in zip(*(c.to_pylist() for c in found), strict=True):
        run = [(record, place) for place in range(first, first + count)]
        assert (record, first - 1) not in rows
        assert (record, first + count) not in rows
        assert total == pytest.approx(sum(10 * record + place for _, place in run))
        assert mean == pytest.approx(total / count)
        covered += run
    assert covered == sorted(rows)
