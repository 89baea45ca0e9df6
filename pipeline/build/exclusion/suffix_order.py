"""Sort all windows of a text, so that a binary search finds a sequence anywhere in the text.

The result is a suffix array, made by prefix doubling. A window has WINDOW tokens.

1. Sort positions by their first WINDOW tokens. Positions with equal tokens form a group.
2. Sort each group by the ranks of the positions WINDOW tokens later. This divides groups by their
   first 2 · WINDOW tokens.
3. Repeat with twice the distance, until each group has one position or reaches the end of an entry.

Even a text of one repeated letter takes only O(log length) rounds. The function needs about 35
bytes of memory for each token.

Source: Manber & Myers, SIAM Journal on Computing 22 (1993).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.build.exclusion.containment_kernel import WINDOW, window_codes


def suffix_order(text: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the positions at which a window of WINDOW tokens begins, sorted by what follows them.

    A position's text ends at the end of its entry. Positions with equal texts are in ascending
    order.

    Args:
        text: uint8[T], tokens from 1 to 31; a 0 follows each entry.
    Returns:
        int64[W].
    """
    codes = window_codes(text)
    is_window = (codes & np.uint64(31)) != 0  # the window ends inside its entry
    order = np.argsort(codes, kind="stable")
    group = _firsts(np.concatenate(([True], np.diff(codes[order]) != 0))[: text.size])
    rank = np.empty(text.size, dtype=np.int64)
    rank[order] = group
    within_entry = is_window.copy()  # at each position, whether the compared tokens are in an entry
    tied = np.flatnonzero(_repeated(group) & within_entry[order])
    distance = WINDOW
    while tied.size:
        at, mine = order[tied], group[tied]
        next_rank, next_within = rank[at + distance], within_entry[at + distance]
        sorting = np.lexsort((at, next_rank, mine))
        at, mine, next_rank = at[sorting], mine[sorting], next_rank[sorting]
        is_first = np.concatenate(([True], (np.diff(mine) != 0) | (np.diff(next_rank) != 0)))
        order[tied], group[tied] = at, tied[_firsts(is_first)]
        rank[at], within_entry[at] = group[tied], next_within[sorting]
        tied = tied[_repeated(group[tied]) & within_entry[at]]
        distance *= 2
    windows: NDArray[np.int64] = order[is_window[order]]
    return windows


def _firsts(is_first: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return, for each element, the index of the last True at or before it, int64[N]."""
    indices = np.arange(is_first.size)
    latest: NDArray[np.int64] = np.maximum.accumulate(np.where(is_first, indices, 0))
    return latest


def _repeated(group: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the elements that equal a neighbour, bool[N]."""
    same = np.diff(group) == 0
    return np.concatenate((same, [False])) | np.concatenate(([False], same))
