"""Windows of long sequences, and rows of windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.shard import Bucket
from schemas.vocabulary import ESM2
from trainer.inference.rows import RowShape, rows_of
from trainer.inference.windows import Window, window_places, windows_of


@given(st.data())
def test_each_residue_belongs_to_the_window_in_which_it_is_farthest_from_the_ends(
    data: st.DataObject,
) -> None:
    longest = data.draw(st.integers(2, 40))
    overlap = data.draw(st.integers(0, longest - 1))
    residues = data.draw(st.integers(longest + 1, 300))
    places = window_places(residues, longest=longest, overlap=overlap)
    assert places[0][0] == 0
    assert places[-1][0] == residues - longest
    owner = {}
    for number, (begin, own_begin, own_end) in enumerate(places):
        assert 0 <= own_begin <= own_end <= longest
        for residue in range(begin + own_begin, begin + own_end):
            assert residue not in owner
            owner[residue] = number
    assert sorted(owner) == list(range(residues))
    for (before, _, _), (after, _, _) in zip(places, places[1:], strict=False):
        assert before + longest - after >= overlap
    if overlap > longest // 2:
        return  # a residue may be in three windows
    for residue, number in owner.items():
        depths = {
            other: min(
                residue - begin if begin else longest,
                begin + longest - 1 - residue if begin + longest < residues else longest,
            )
            for other, (begin, _, _) in enumerate(places)
            if begin <= residue < begin + longest and other in (number - 1, number, number + 1)
        }
        assert depths[number] == max(depths.values())


def bucket_of(*sequences: list[int], capacity: int = 64, padding: int = 0) -> Bucket:
    tokens = [[ESM2.cls, *each, ESM2.eos] + [ESM2.pad] * padding for each in sequences]
    edges = np.cumsum([0, *map(len, tokens)])
    flat = [token for each in tokens for token in each]
    return Bucket(
        input_ids=np.array(flat + [ESM2.pad] * (capacity - len(flat)), dtype=np.uint8),
        cu_seqlens=np.array([*edges, capacity], dtype=np.int32),
        max_seqlen=capacity,
        num_seqs=len(tokens),
        num_tokens=len(flat) - padding * len(tokens),
        position=-1,
    )


@pytest.mark.parametrize("padding", [0, 3])
def test_windows_hold_the_residues_of_their_place(padding: int) -> None:
    long = [4 + n % 20 for n in range(23)]
    bucket = bucket_of([5, 6, 7], long, padding=padding)
    found = list(
        windows_of(
            bucket,
            np.array([11, 12], dtype=np.int64),
            np.array([0, 100], dtype=np.int32),
            longest=12,
            overlap=4,
        )
    )
    assert found[0].tokens.tolist() == [ESM2.cls, 5, 6, 7, ESM2.eos]
    assert (found[0].record, found[0].own_begin, found[0].own_end) == (11, 0, 3)
    owned = []
    for window in found[1:]:
        first = window.start - 100
        assert window.record == 12
        assert window.tokens.tolist() == [ESM2.cls, *long[first : first + 10], ESM2.eos]
        owned += list(range(first + window.own_begin, first + window.own_end))
    assert owned == list(range(23))


def test_rows_hold_each_window_once_and_name_its_own_tokens() -> None:
    rng = np.random.default_rng(0)
    windows = []
    for record, size in enumerate(rng.integers(1, 60, 200).tolist()):
        begin = int(rng.integers(0, size))
        windows.append(
            Window(
                tokens=np.array([ESM2.cls, *rng.integers(4, 24, size), ESM2.eos], dtype=np.uint8),
                record=record,
                start=0,
                own_begin=begin,
                own_end=size,
            )
        )
    shape = RowShape(tokens=256, longest=62)
    rows = list(rows_of(windows, shape))
    assert sorted(w.record for row in rows for w in row.windows) == list(range(200))
    total = sum(window.tokens.size for window in windows)
    assert len(rows) <= 1.05 * total / 256 + 1
    for row in rows:
        edges = row.bucket.cu_seqlens
        assert edges.shape == (shape.slots + 1,)
        assert edges[0] == 0
        assert (np.diff(edges) >= 0).all()
        assert np.diff(edges).max() <= shape.longest
        assert edges[-1] == 256
        for number, window in enumerate(row.windows):
            tokens = row.bucket.input_ids[edges[number] : edges[number + 1]]
            assert tokens.tolist() == window.tokens.tolist()
            begin, end = row.owned.reshape(-1, 2)[number] - edges[number]
            assert (begin, end) == (1 + window.own_begin, 1 + window.own_end)
        rest = row.bucket.input_ids[edges[len(row.windows)] :]
        assert (rest == ESM2.pad).all()
