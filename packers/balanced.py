"""`balanced` fills every bucket almost completely and gives all buckets the same attention cost.

A bucket is one row of exactly `capacity` tokens. Its attention cost is Σ length² over its
sequences.

1. Read a window of sequences worth 512 buckets.
2. Go through it from long to short. Give each sequence to the bucket with the least Σ length² that
   has room (LPT scheduling with a capacity).
3. Close the gaps. Add a waiting sequence that fits a gap exactly, or exchange a packed sequence for
   a waiting one that is longer by the gap.
4. Open the next window with the sequences that still wait.
5. Spread the end of the stream, between 512 and 1,023 buckets, over as few buckets as can hold it.
   All of them are then equally full and equally expensive.

No sequence waits long, and every bucket is a fair sample of lengths. It costs about 0.25 µs a
sequence on one core. Not for streams sorted by length: shuffle them first.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

import packers.balanced_kernel as kernel
from packers._check import checked_lengths
from packers.baselines import pack_next_fit

WINDOW_BUCKETS: Final = 512
"""Buckets filled together. With 16,384 tokens per bucket on Swiss-Prot, the spread of Σ length² is
0.0066 with 256 buckets, and 0.0038 with 512. See docs/decisions/0002-balanced-window-of-512.md."""

RESERVE: Final = 512
"""Sequences read past the window for step 3 to choose from. With fewer, some gaps find no match."""

_LAST_RESERVE: Final = 64
"""Least reserve at the end of the stream."""
HELD_BACK: Final = 16
"""Buckets that are emptied again if more of the stream follows; at most a quarter of a window."""
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
        final: place all sequences. Otherwise leave some of them for a later call, which packs what
            several calls have left. Those that are left are nearly a fair sample of all lengths.
    Returns:
        int32[N], bucket of each sequence, numbered from 0 without gaps; -1 if it was left out.
    Raises:
        ValueError: a length is outside 1..capacity, or max_seqs is below 1.
    Source: LPT list scheduling (Graham, SIAM J. Appl. Math. 1969) with a capacity; step 3 is ours.
    """
    lengths = checked_lengths(lengths, capacity=capacity, max_seqs=max_seqs)
    packing = _Packing(lengths, capacity, max_seqs)
    if lengths.size == 0:
        return packing.bucket_of
    tokens_before = np.concatenate(([0], np.cumsum(lengths)))
    waiting = np.empty(0, dtype=np.int64)  # indices into `lengths`, in stream order
    cursor = 0
    while True:
        window, waiting_tokens = WINDOW_BUCKETS * capacity, int(lengths[waiting].sum())
        # up to two windows are packed at once: few buckets at the end would not be equal
        if waiting_tokens + tokens_before[-1] - tokens_before[cursor] < 2 * window:
            break
        want = window - waiting_tokens
        stop = int(np.searchsorted(tokens_before, tokens_before[cursor] + want))
        stop = min(stop + RESERVE, lengths.size)
        queue = np.concatenate((waiting, np.arange(cursor, stop)))
        cursor = stop
        packing.fill(queue, WINDOW_BUCKETS)
        waiting = queue[packing.bucket_of[queue] < 0]
    queue = np.concatenate((waiting, np.arange(cursor, lengths.size)))
    if final:
        packing.place_all(queue)
    else:
        packing.fill_and_hold_back(queue)
    return packing.bucket_of


class _Packing:
    """An assignment of sequences to buckets that is under way.

    bucket_of: int32[N], bucket of each sequence, -1 while it waits
    buckets:   number of buckets that are finished
    """

    def __init__(self, lengths: NDArray[np.int64], capacity: int, max_seqs: int) -> None:
        self.lengths = lengths
        self.capacity = capacity
        self.max_seqs = max_seqs
        mean_seqs = capacity * lengths.size / max(int(lengths.sum()), 1)
        self.wanted_seqs = min(max_seqs, _comfortable_seqs(mean_seqs))
        self.bucket_of = np.full(lengths.size, -1, dtype=np.int32)
        self.buckets = 0
        # scratch memory of the kernel, all -1 between its calls
        self._by_length = np.full(int(lengths.max(initial=0)) + 1, -1, dtype=np.int64)

    def fill(self, queue: NDArray[np.int64], buckets: int) -> None:
        """Fill new buckets from the queue, which holds more than they do.

        Args:
            queue: int64[Q], indices into `lengths`, in stream order.
        """
        # Leave a little room. Otherwise the shortest sequences pile up at the end of the stream.
        tokens = buckets * (self.capacity - self.capacity // _SLACK)
        enough = int(np.searchsorted(np.cumsum(self.lengths[queue]), tokens))
        self._place(queue[:enough], queue[enough:], buckets)
        self.buckets += buckets

    def fill_and_hold_back(self, queue: NDArray[np.int64]) -> None:
        """Fill as many buckets as the queue can, and empty the last few of them again.

        Sequences that found no room are not a fair sample of lengths. The sequences of whole
        buckets are, so buckets that are packed from both later cost about as much as the others.
        """
        tokens = int(self.lengths[queue].sum())
        most = tokens // self.capacity
        # the fewer sequences a bucket has, the more it takes to find one that closes its gap
        reserve = max(_LAST_RESERVE, 3 * most * most // max(queue.size, 1))
        buckets = max(tokens - reserve * tokens // max(queue.size, 1), 0) // self.capacity
        if buckets == 0:
            return
        self.fill(queue, buckets)
        self.buckets -= min(HELD_BACK, buckets // 4)
        self.bucket_of[self.bucket_of >= self.buckets] = -1

    def place_all(self, queue: NDArray[np.int64]) -> None:
        """Place the whole queue, the end of the stream.

        1. Spread it over the fewest buckets that could hold it.
        2. If a sequence finds no room, fill most buckets to the last token instead, and spread the
           remaining sequences over the fewest buckets that could hold those, or one more.
        3. If next-fit needs fewer buckets than that, which a few odd lengths can cause, use it.
        """
        start = self.buckets
        if not self._spread(queue, additional=0):
            self.bucket_of[queue] = -1
            self.fill_and_hold_back(queue)
            remaining = queue[self.bucket_of[queue] < 0]
            if not self._spread(remaining, additional=0):
                self._spread(remaining, additional=1)
        next_fit = pack_next_fit(
            self.lengths[queue], capacity=self.capacity, max_seqs=self.max_seqs
        )
        if next_fit.max(initial=-1) < self.bucket_of[queue].max(initial=-1) - start:
            self.bucket_of[queue] = next_fit + start

    def _spread(self, queue: NDArray[np.int64], *, additional: int) -> bool:
        """Spread the queue over the fewest buckets that could hold it, and `additional` ones.

        Sequences that find no room open more buckets. Return whether that was not necessary.
        """
        tokens = int(self.lengths[queue].sum())
        fewest = max(-(-tokens // self.capacity), -(-queue.size // self.wanted_seqs))
        buckets = fewest + additional
        self.bucket_of[queue] = -1
        free, count = self._place(queue, queue[:0], buckets)
        homeless = kernel.long_to_short(self.lengths, queue[self.bucket_of[queue] < 0])
        kernel.place_rest(
            self.lengths,
            homeless,
            self.max_seqs,
            self.bucket_of,
            self.buckets,
            buckets,
            np.concatenate((free, np.full(homeless.size, self.capacity))),
            np.concatenate((count, np.zeros(homeless.size, dtype=np.int64))),
        )
        return int(self.bucket_of[queue].max(initial=-1)) < self.buckets + buckets

    def _place(
        self, members: NDArray[np.int64], reserve: NDArray[np.int64], buckets: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pack members into new buckets, and close gaps with members without room and the reserve.

        Returns:
            int64[buckets] twice, free tokens and sequences of each bucket.
        """
        members = kernel.long_to_short(self.lengths, members)
        free = np.full(buckets, self.capacity, dtype=np.int64)
        cost, count = np.zeros(buckets, dtype=np.int64), np.zeros(buckets, dtype=np.int64)
        first = self.buckets
        state = (self.wanted_seqs, self.bucket_of, first, self._by_length, free, cost, count)
        kernel.place(self.lengths, members, self.capacity, *state)
        candidates = np.concatenate((members[self.bucket_of[members] < 0], reserve))
        if candidates.size:
            kernel.close_gaps(self.lengths, members, candidates, *state)
        return free, count


def _comfortable_seqs(mean: float) -> int:
    """Return the most sequences for buckets that hold `mean` on average.

    It is one below a power of two, which leaves a slot for the tail.
    """
    most = 31
    while most < 1.2 * mean:
        most = 2 * most + 1
    return most
