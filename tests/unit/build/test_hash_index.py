"""Runs of the hash index: the sort, and lookups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.build.hash_index.hash_columns import HashColumns, sorted_by_hash
from pipeline.build.hash_index.index_runs import EarlierRecords, write_run
from pipeline.storage.local_folder import LocalFolder


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 8, 100, 5_000])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("bits", [1, 3, 64])
def test_the_order_is_that_of_a_lexicographic_sort(rows: int, parts: int, bits: int) -> None:
    """With few bits, many rows have the same upper half or are in the same bucket."""
    rng = np.random.default_rng([rows, parts, bits])
    high, low = rng.integers(0, (1 << bits) - 1, (2, rows), dtype=np.uint64, endpoint=True)
    ordinal = rng.permutation(rows).astype(np.int64)
    cuts = np.array_split(np.arange(rows), parts)
    found = sorted_by_hash([HashColumns(high[c], low[c], ordinal[c]) for c in cuts])
    order = np.lexsort((low, high))
    assert np.array_equal(found.high, high[order])
    assert np.array_equal(found.low, low[order])
    pairs = sorted(zip(high.tolist(), low.tolist(), ordinal.tolist(), strict=True))
    ours = zip(found.high.tolist(), found.low.tolist(), found.ordinal.tolist(), strict=True)
    assert sorted(ours) == pairs


def test_no_parts_give_no_rows() -> None:
    assert sorted_by_hash([]).ordinal.size == 0


@pytest.mark.parametrize("disjoint", [True, False])
@pytest.mark.parametrize("bits", [2, 8, 64])
def test_a_lookup_finds_the_ordinals_of_the_hashes_that_a_run_has(
    tmp_path: Path, bits: int, disjoint: bool
) -> None:
    """The ranges of the runs are disjoint, or overlap. One run is empty. With few bits, most
    hashes are equal to others in one half."""
    (tmp_path / "index").mkdir()
    out = LocalFolder(tmp_path, scratch=tmp_path)
    rng = np.random.default_rng([bits, disjoint])
    drawn = rng.integers(0, (1 << bits) - 1, (600, 2), dtype=np.uint64, endpoint=True)
    pairs = np.unique(drawn, axis=0)  # sorted by the first column, then the second
    known, unknown = pairs[::2], pairs[1::2]
    numbers = np.arange(len(known))
    groups = np.array_split(numbers if disjoint else rng.permutation(numbers), 4)
    runs = [
        write_run(
            out,
            f"index/{i}.arrow",
            [HashColumns(known[rows, 0].copy(), known[rows, 1].copy(), rows.astype(np.int64))],
        )
        for i, rows in enumerate([*groups, groups[0][:0]])
    ]
    wanted = np.concatenate([known, unknown])
    expected = np.concatenate([numbers, np.full(len(unknown), -1)])
    order = rng.permutation(len(wanted))
    hashes = np.empty(len(wanted), dtype=HASH)
    hashes["high"], hashes["low"] = wanted[order].T
    earlier = EarlierRecords(out, runs)
    assert earlier.find(hashes).tolist() == expected[order].tolist()
    assert earlier.find(hashes[:0]).size == 0
