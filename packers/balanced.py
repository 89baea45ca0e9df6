"""`balanced` fills every bucket almost completely, with nearly equal attention cost in all buckets.

A bucket is one row of exactly `capacity` tokens. The attention cost of a bucket is Σ length² over
its sequences, and the gap of a bucket is its number of free tokens. A sequence without a bucket is
called waiting.

1. Read a window: the sequences that fill 512 buckets, and a reserve of 512 further sequences.
2. Take the sequences of the window from long to short. Put each sequence into the bucket with the
   least Σ length² among the buckets that have room for it. This is LPT (longest processing time
   first) with a capacity.
3. Close the gaps. Add a waiting sequence that fits a gap exactly, or exchange a packed sequence for
   a waiting sequence that is longer by the gap.
4. Begin the next window with the sequences that are still waiting.
5. At the end of the stream, spread the last sequences over the smallest possible number of
   buckets: 512 to 1,023 buckets, or fewer for a short stream. These buckets are then equally full
   and equally expensive.

No sequence waits long, and every bucket is a fair sample of lengths. Packing takes about 0.25 µs
per sequence on one core. If a stream is sorted by length, shuffle it before packing.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

import packers.balanced_kernel as kernel
from packers._check import checked_lengths
from packers.baselines import pack_next_fit

WINDOW_BUCKETS: Final = 512
"""Number of buckets that are filled together. The spread is the coefficient of variation of
Σ length². On Swiss-Prot with 16,384 tokens per bucket, it is 0.0066 for windows of 256 buckets and
0.0038 for windows of 512 buckets. See docs/decisions/0002-balanced-window-of-512.md."""

RESERVE: Final = 512
"""Number of additional sequences from which step 3 chooses. With a smaller reserve, some gaps stay
open."""

_LAST_RESERVE: Final = 64
"""Minimum number of sequences in the reserve at the end of the stream."""
HELD_BACK: Final = 16
"""Maximum number of buckets that `fill_and_hold_back` empties again. The method never empties more
than a quarter of the buckets that it filled."""
_SLACK: Final = 1024
"""Step 2 leaves about 1 / _SLACK of a bucket's tokens free, and step 3 fills them."""


def pack_balanced(
    lengths: NDArray[np.int64], *, capacity: int, max_seqs: int, final: bool = True
) -> NDArray[np.int32]:
    """Assign each sequence to a bucket so that buckets are full and nearly equal in Σ length².

    Args:
        lengths: int64[N], lengths in tokens, <cls> and <eos> included, in shuffled order.
        capacity: number of tokens per bucket.
        max_seqs: maximum number of sequences that a bucket may hold.
        final: True to place all sequences. If False, leave some sequences out, so that a later call
            can pack the left-out sequences of several calls together. The lengths of the left-out
            sequences are nearly a fair sample of all lengths.
    Returns:
        int32[N], bucket of each sequence, numbered from 0 without gaps; -1 for a left-out sequence.
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
    window = WINDOW_BUCKETS * capacity
    while True:
        waiting_tokens = int(lengths[waiting].sum())
        # The last window takes the rest of the stream: up to twice the tokens of other windows. A
        # small additional window would have unequal buckets.
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
    """An unfinished assignment of sequences to buckets.

    bucket_of: int32[N], bucket of each sequence; -1 for a waiting sequence
    buckets:   number of finished buckets
    """

    def __init__(self, lengths: NDArray[np.int64], capacity: int, max_seqs: int) -> None:
        self.lengths = lengths
        self.capacity = capacity
        self.max_seqs = max_seqs
        mean_seqs = capacity * lengths.size / max(int(lengths.sum()), 1)
        self.wanted_seqs = min(max_seqs, _comfortable_seqs(mean_seqs))
        self.bucket_of = np.full(lengths.size, -1, dtype=np.int32)
        self.buckets = 0
        # scratch memory of the kernel; all values are -1 between calls of the kernel
        self._by_length = np.full(int(lengths.max(initial=0)) + 1, -1, dtype=np.int64)

    def fill(self, queue: NDArray[np.int64], buckets: int) -> None:
        """Fill new buckets from the queue, which must have more tokens than fit into these buckets.

        Args:
            queue: int64[Q], indices into `lengths`, in stream order.
        """
        # Leave a little room. Otherwise the shortest sequences would all wait until the end.
        tokens = buckets * (self.capacity - self.capacity // _SLACK)
        enough = int(np.searchsorted(np.cumsum(self.lengths[queue]), tokens))
        self._place(queue[:enough], queue[enough:], buckets)
        self.buckets += buckets

    def fill_and_hold_back(self, queue: NDArray[np.int64]) -> None:
        """Fill as many buckets as the queue has tokens for, then empty the last few buckets again.

        All sequences without a bucket are left for a later call. The sequences that found no room
        are not a fair sample of all lengths. The sequences of the emptied buckets are a fair
        sample. With both kinds of sequences, the later call can pack buckets of about the usual
        cost.
        """
        tokens = int(self.lengths[queue].sum())
        most = tokens // self.capacity
        # if buckets hold few sequences, step 3 needs more candidates to close a gap
        reserve = max(_LAST_RESERVE, 3 * most * most // max(queue.size, 1))
        buckets = max(tokens - reserve * tokens // max(queue.size, 1), 0) // self.capacity
        if buckets == 0:
            return
        self.fill(queue, buckets)
        self.buckets -= min(HELD_BACK, buckets // 4)
        self.bucket_of[self.bucket_of >= self.buckets] = -1

    def place_all(self, queue: NDArray[np.int64]) -> None:
        """Place the whole queue, which is the end of the stream.

        1. Spread the queue over the fewest buckets that could hold the queue.
        2. If a sequence finds no room, start again: fill most buckets completely. Spread the
           remaining sequences over the fewest buckets that could hold them, or over one more.
        3. If next-fit needs fewer buckets, use the result of next-fit. This can happen if there are
           a few unusual lengths.
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
        """Spread the queue over the fewest buckets that could hold it, plus `additional` buckets.

        Sequences that find no room go into further buckets. Return True if no further bucket was
        needed.
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
        """Pack the sequences of `members` into new buckets, then close gaps with other sequences:
        the sequences of `reserve`, and members that found no room.

        members, reserve: int64, indices into `lengths`
        Returns:
            int64[buckets], number of free tokens of each bucket; int64[buckets], number of
            sequences of each bucket.
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
    """Return the number of sequences that steps 2 and 3 allow in a bucket: at least 1.2 times the
    mean.

    With the slot for the padding at the end, the number of slots is a power of two, so the result
    is one less.

    mean: average number of sequences in a full bucket
    """
    most = 31
    while most < 1.2 * mean:
        most = 2 * most + 1
    return most
