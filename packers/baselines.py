"""Packers to compare `balanced` with: `next-fit`, `best-fit` and best-fit decreasing (`bfd`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import packers.baselines_kernel as kernel
from packers._check import checked_lengths


def pack_next_fit(
    lengths: NDArray[np.int64], *, capacity: int, max_seqs: int, final: bool = True
) -> NDArray[np.int32]:
    """Assign sequences to one open bucket. If a sequence does not fit, open the next bucket.

    Args:
        lengths: int64[N], lengths in tokens, <cls> and <eos> included, in shuffled order.
        capacity: number of tokens per bucket.
        max_seqs: maximum number of sequences that a bucket may hold.
        final: True to keep the last bucket, which is partly filled. If False, the sequences of the
            last bucket are left out.
    Returns:
        int32[N], bucket of each sequence, numbered from 0; -1 for a left-out sequence.
    Raises:
        ValueError: a length is outside 1..capacity, or max_seqs is below 1.
    Source: next-fit (Johnson, MIT 1973).
    """
    return pack_best_fit(lengths, capacity=capacity, max_seqs=max_seqs, final=final, num_open=1)


def pack_best_fit(
    lengths: NDArray[np.int64],
    *,
    capacity: int,
    max_seqs: int,
    final: bool = True,
    num_open: int = 8,
) -> NDArray[np.int32]:
    """Assign each sequence to the fullest of `num_open` open buckets that has room.

    If no open bucket has room, close the fullest bucket and open a new bucket.

    Args:
        lengths: int64[N], lengths in tokens, <cls> and <eos> included, in shuffled order.
        capacity: number of tokens per bucket.
        max_seqs: maximum number of sequences that a bucket may hold.
        final: True to keep the buckets that are open at the end. If False, the sequences of these
            buckets are left out.
        num_open: number of buckets that are open at a time.
    Returns:
        int32[N], bucket of each sequence, numbered from 0; -1 for a left-out sequence.
    Raises:
        ValueError: a length is outside 1..capacity, or max_seqs is below 1.
    Source: bounded-space best-fit (Csirik & Johnson, Algorithmica 2001).
    """
    checked = checked_lengths(lengths, capacity=capacity, max_seqs=max_seqs)
    buckets, still_open = kernel.best_fit(checked, capacity, max_seqs, num_open)
    if not final:
        buckets[np.isin(buckets, still_open)] = -1
    return _renumbered(buckets)


def _renumbered(buckets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Renumber the buckets from 0 without gaps. -1 stays -1."""
    numbers, renumbered = np.unique(buckets, return_inverse=True)
    return (renumbered - np.count_nonzero(numbers < 0)).astype(np.int32)


def pack_best_fit_decreasing(
    lengths: NDArray[np.int64], *, capacity: int, max_seqs: int, final: bool = True
) -> NDArray[np.int32]:
    """Assign each sequence, from long to short, to the fullest bucket that has room.

    Buckets are well filled, but each bucket holds sequences of similar length. The coefficient of
    variation of Σ length² over buckets is therefore about 0.5. Use this packer for comparison only.

    Args:
        lengths: int64[N], lengths in tokens, <cls> and <eos> included.
        capacity: number of tokens per bucket.
        max_seqs: maximum number of sequences that a bucket may hold.
        final: True to keep the emptiest bucket. If False, leave out its sequences.
    Returns:
        int32[N], bucket of each sequence, numbered from 0; -1 for a left-out sequence.
    Raises:
        ValueError: a length is outside 1..capacity, or max_seqs is below 1.
    Source: best-fit decreasing (Johnson et al., SIAM J. Comput. 1974).
    """
    checked = checked_lengths(lengths, capacity=capacity, max_seqs=max_seqs)
    if checked.size == 0:
        return np.empty(0, dtype=np.int32)
    order = np.argsort(-checked, kind="stable")
    buckets, free = kernel.best_fit_decreasing(checked, order, capacity, max_seqs)
    if not final:
        buckets[buckets == np.argmax(free)] = -1
    return _renumbered(buckets)
