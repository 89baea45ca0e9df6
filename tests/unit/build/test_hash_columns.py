"""The sort of the hash index."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.build.hash_index.hash_columns import HashColumns, sorted_by_hash


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
