"""Sort all windows of a text, so that a binary search finds a sequence anywhere in the text.

The text consists of entries (sequences), each followed by a 0. A window is WINDOW tokens of one
entry. The result is a suffix array, made by prefix doubling:

1. Sort the positions by the WINDOW tokens that begin there. Positions with equal tokens form a
   group. Groups are numbered in this order.
2. Sort each group. The sort key of position p is the number of the group that holds p + WINDOW.
   The positions of a new, smaller group then agree in 2 · WINDOW tokens.
3. Repeat with twice the distance. A group is finished when it has one position, or when the
   compared tokens reach the end of an entry.

Even a text of one repeated letter takes only O(log length) rounds. The function needs about 35
bytes of memory for each token.

Source: Manber & Myers, SIAM Journal on Computing 22 (1993).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.build.exclusion.containment_kernel import WINDOW, window_codes


def suffix_order(text: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the positions where windows begin, int64[W], sorted by the tokens from the position to
    the end of its entry. If these tokens are equal, the smaller position comes first.

    Args:
        text: uint8[T], tokens from 1 to 31; a 0 follows each entry.
    """
    codes = window_codes(text)
    is_window = (codes & np.uint64(31)) != 0  # the window ends inside its entry
    order = np.argsort(codes, kind="stable")
    group = _firsts(np.concatenate(([True], np.diff(codes[order]) != 0))[: text.size])
    rank = np.empty(text.size, dtype=np.int64)
    rank[order] = group
    within_entry = is_window.copy()  # True if all tokens compared so far are in one entry
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
