"""The global order of buckets, a pure function of bucket counts, seed, epoch and position.

A dataset has one or more variants, and each epoch reads the next variant. An epoch first permutes
the shards of its variant, and groups WINDOW_SHARDS consecutive shards into a window. The buckets of
each window are then permuted inside the window, so that a reader needs few shards at a time.

Only the permuted shards and the first position of each shard are stored. The place of a bucket
inside its window is computed. The time to find a bucket does not depend on its position: about
0.2 µs if one call computes 8,192 positions, and 0.5 µs if one call computes 1,024 positions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.reader.order.split_shards import shard_id
from schemas.splitmix import mix, mix_all

WINDOW_SHARDS: Final = 4
"""Number of shards whose buckets are shuffled together. If you change this number, the order
changes, and STATE_VERSION must change, too."""

POSITIONS: Final = 1 << 62
"""All positions are below this limit, and sums of positions therefore fit into int64."""

_ROUNDS: Final = 6


def permuted(
    values: NDArray[np.int64], size: int, key: int | NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return the images of `values`, int64[n], under a keyed permutation of 0..size - 1.

    Args:
        key: one key for all values, or uint64[n], a key for each value.
    Source: a Feistel network (Luby & Rackoff, SIAM J. Comput. 1988) permutes 0..P - 1, where P is
        the smallest power of two that is at least `size` and at least 4. The network is applied to
        a value until the result is below `size` (cycle walking, Black & Rogaway, CT-RSA 2002). On
        average, a value needs at most two applications.
    """
    if size == 1:
        return np.zeros_like(values)
    bits = max(2, (size - 1).bit_length())
    low_bits = np.uint64(bits // 2)
    masks = np.uint64((1 << (bits // 2)) - 1), np.uint64((1 << (bits - bits // 2)) - 1)
    keys = mix(
        np.atleast_1d(np.asarray(key, dtype=np.uint64))
        ^ np.arange(_ROUNDS, dtype=np.uint64)[:, None]
    )
    result = values.astype(np.uint64)
    walking = np.arange(values.size)
    while walking.size:
        x = result[walking]
        halves = [x & masks[0], x >> low_bits]
        for i, round_keys in enumerate(keys if keys.shape[1] == 1 else keys[:, walking]):
            halves[i % 2] = halves[i % 2] ^ (mix(halves[1 - i % 2] ^ round_keys) & masks[i % 2])
        result[walking] = x = (halves[1] << low_bits) | halves[0]
        walking = walking[x >= size]
    return result.astype(np.int64)


class EpochOrder:
    """The order of one epoch.

    shards: int64[S], ids of the shards in the order in which readers open them
    starts: int64[windows + 1], first position of each window in the epoch
    """

    def __init__(
        self, counts: NDArray[np.int64], seed: int, epoch: int, first_shard: int = 0
    ) -> None:
        """Permute the shards.

        Args:
            counts: int64[S], number of buckets of each shard, at least 1.
            first_shard: id of the first of these shards. The ids are consecutive.
        """
        self._key = mix_all(seed, epoch)
        order = np.argsort(
            mix(np.arange(counts.size, dtype=np.uint64) ^ np.uint64(self._key)), kind="stable"
        )
        self.shards = order + first_shard
        self._edges = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts[order])])
        self.starts = np.append(self._edges[:-1:WINDOW_SHARDS], self._edges[-1])

    def window_at(self, offset: int) -> int:
        """Return the number of the window that holds a position of the epoch."""
        return int(np.searchsorted(self.starts, offset, side="right")) - 1

    def window_shards(self, window: int) -> list[int]:
        """Return the shards of a window."""
        first = window * WINDOW_SHARDS
        return [int(shard) for shard in self.shards[first : first + WINDOW_SHARDS]]

    def locate(
        self, window: int, offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return shard and row of buckets, int64[n] each.

        offsets: int64[n], positions in the epoch, all in `window`
        """
        start = int(self.starts[window])
        inside = permuted(
            offsets - start, int(self.starts[window + 1]) - start, mix_all(self._key, window)
        )
        first = window * WINDOW_SHARDS
        edges = self._edges[first : first + WINDOW_SHARDS + 1] - start
        slot = np.searchsorted(edges, inside, side="right") - 1
        return self.shards[first + slot], inside - edges[slot]


class Order:
    """The endless order of one split's buckets, epoch after epoch.

    If the dataset has K variants, epoch e reads variant e mod K.
    """

    def __init__(
        self, buckets: Sequence[int], counts: Callable[[int], NDArray[np.int64]], seed: int
    ) -> None:
        """Prepare the order.

        Args:
            buckets: number of buckets of each of the K variants, at least 1.
            counts: function that returns the number of buckets of each shard of a variant,
                int64[S].
        """
        self._variants = len(buckets)
        self._edges = [0, *accumulate(buckets)]
        self._counts = counts
        self._seed = seed
        self._epochs: dict[int, EpochOrder] = {}
        self.buckets = self._edges[-1]
        """Number of buckets in one cycle through all variants."""

    def variant(self, epoch: int) -> int:
        """Return the variant that an epoch reads."""
        return epoch % self._variants

    def epoch_at(self, position: int) -> tuple[int, int]:
        """Return the epoch that holds a position, and the first position of the epoch."""
        cycle, rest = divmod(position, self.buckets)
        variant = bisect_right(self._edges, rest) - 1
        return cycle * self._variants + variant, position - rest + self._edges[variant]

    def end_of_epoch(self, position: int) -> int:
        """Return the first position after the epoch that holds a position."""
        epoch, first = self.epoch_at(position)
        variant = self.variant(epoch)
        return first + self._edges[variant + 1] - self._edges[variant]

    def epoch(self, number: int) -> EpochOrder:
        """Return the order of an epoch. The orders of this epoch and its neighbours stay cached."""
        order = self._epochs.get(number)
        if order is None:
            variant = self.variant(number)
            order = EpochOrder(self._counts(variant), self._seed, number, shard_id(variant))
            self._epochs = {
                **{kept: other for kept, other in self._epochs.items() if abs(kept - number) == 1},
                number: order,
            }
        return order

    def shards_after(self, epoch: int, window: int) -> Iterator[int]:
        """Yield the ids of the shards that follow a window, in the order of use, endlessly."""
        done = (window + 1) * WINDOW_SHARDS
        while True:
            yield from self.epoch(epoch).shards[done:].tolist()
            epoch, done = epoch + 1, 0

    def locate(self, position: int) -> tuple[int, int]:
        """Return shard and row of the bucket at a position.

        Raises:
            ValueError: the position is not in 0 … 2^62 - 1.
        """
        if not 0 <= position < POSITIONS:
            raise ValueError(f"position is {position}, expected 0 ≤ position < 2^62")
        epoch, first = self.epoch_at(position)
        order = self.epoch(epoch)
        offset = position - first
        shard, row = order.locate(order.window_at(offset), np.array([offset]))
        return int(shard[0]), int(row[0])
