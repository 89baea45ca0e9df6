"""Copies of windows that own one residue each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.inference.windows import Window, one_residue_each


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
