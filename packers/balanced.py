"""`balanced` fills every bucket almost completely and gives all buckets the same attention cost.

A bucket is one row of exactly `capacity` tokens. Its attention cost is Σ length² over its
sequences.

1. Read a window of sequences worth 512 buckets.
2. Go through it from long to short. Give each sequence to the bucket with the least Σ length² that
   has room (LPT scheduling with a capacity).
3. Close the gaps. Add a waiting sequence that fits a gap exactly, or exchange a packed sequence for
   a waiting one that is longer by the gap.
4. Open the next window with the sequences that still wait.

No sequence waits long, and every bucket is a fair sample of lengths. It costs about 0.25 µs a
sequence on one core. Not for streams sorted by length: shuffle them first.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

import packers.balanced_kernel as kernel
from packers._check import checked_lengths

WINDOW_BUCKETS: Final = 512
"""Buckets filled together. With 16,384 tokens per bucket on Swiss-Prot, the spread of Σ length² is
0.0066 with 256 buckets, and 0.0038 with 512. See docs/decisions/0002-balanced-window-of-512.md."""

RESERVE: Final = 512
"""Sequences read past the window for step 3 to choose from. With fewer, some gaps find no match."""

_LAST_RESERVE: Final = 64
"""The reserve at the end of the stream."""
_SLACK: Final = 1024
"""Step 2 leaves 1/1024 of a bucket empty for step 3."""


def pack_balanced(
    lengths: NDArray[np.int64], *, capacity: int, max_seqs: int, final: bool = True
) -> NDArray[np.int32]:
    """Assign each sequence to a bucket so that buckets are full and nearly equal in Σ length².

    Args:
        lengths: int64[N], tokens per sequence, specials included, in shuffled order.
        capacity: tokens per bucket.
        max_seqs: most sequences in a bucket.
        final: place all sequences, so that the last bucket is part-filled; otherwise leave out
            those that do not fill a bucket.
    Returns:
        int32[N], bucket of each sequence, numbered from 0 without gaps; -1 if it was left out.
    Raises:
        ValueError: a length is outside 1..capacity, or max_seqs is below 1.
    Source: LPT list scheduling (Graham, SIAM J. Appl. Math. 1969) with a capacity; step 3 is ours.
    """
    lengths = checked_lengths(lengths, capacity=capacity, max_seqs=max_seqs)
    if lengths.size == 0:
        return np.empty(0, dtype=np.int32)
    wanted_seqs = min(max_seqs, _comfortable_seqs(capacity / float(lengths.mean())))
    bucket_of = np.full(lengths.size, -1, dtype=np.int32)
    by_length = np.full(int(lengths.max()) + 1, -1, dtype=np.int64)  # scratch, all -1 between uses
    tokens_before = np.concatenate(([0], np.cumsum(lengths)))
    waiting = np.empty(0, dtype=np.int64)  # indices into `lengths`, in stream order
    cursor = 0
    first_bucket = 0
    while True:
        want = WINDOW_BUCKETS * capacity - int(lengths[waiting].sum())
        stop = max(cursor, int(np.searchsorted(tokens_before, tokens_before[cursor] + want)))
        stop = min(stop + RESERVE, lengths.size)
        queue = np.concatenate((waiting, np.arange(cursor, stop)))
        cursor = stop
        at_end = cursor == lengths.size
        buckets = _buckets_of_window(lengths[queue], capacity, at_end=at_end, final=final)
        if buckets == 0:
            break
        # Leave a little room. Otherwise the shortest sequences pile up at the end of the stream.
        enough = int(
            np.searchsorted(np.cumsum(lengths[queue]), buckets * (capacity - capacity // _SLACK))
        )
        members = kernel.long_to_short(lengths, queue[:enough])
        free = np.full(buckets, capacity, dtype=np.int64)
        cost, count = np.zeros(buckets, dtype=np.int64), np.zeros(buckets, dtype=np.int64)
        state = (wanted_seqs, bucket_of, first_bucket, by_length, free, cost, count)
        kernel.place(lengths, members, capacity, *state)
        candidates = np.concatenate((members[bucket_of[members] < 0], queue[enough:]))
        kernel.close_gaps(lengths, members, candidates, *state)
        waiting = queue[bucket_of[queue] < 0]
        first_bucket += buckets
        if at_end and not final:
            break
    if final:
        rest = kernel.long_to_short(lengths, queue)
        kernel.place_rest(lengths, rest, capacity, max_seqs, bucket_of, first_bucket)
    return bucket_of


def _comfortable_seqs(mean: float) -> int:
    """Return the most sequences for buckets that hold `mean` on average.

    It is one below a power of two, which leaves a slot for the tail.
    """
    most = 31
    while most < 1.2 * mean:
        most = 2 * most + 1
    return most


def _buckets_of_window(
    lengths: NDArray[np.int64], capacity: int, *, at_end: bool, final: bool
) -> int:
    """Return how many buckets the queue fills, with some of it left for step 3 to choose from."""
    tokens = int(lengths.sum())
    buckets = min(WINDOW_BUCKETS, tokens // capacity)
    if at_end:
        reserve = _LAST_RESERVE * tokens // max(lengths.size, 1)
        return max(min(buckets, (tokens - reserve) // capacity), int(final and buckets > 0))
    return buckets
