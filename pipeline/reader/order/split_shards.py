"""The shards of one split in all variants, and the numbers of the split's buckets in stored
order."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.manifest import Manifest
from schemas.manifest_entries import ShardEntry

_INDEX_BITS: Final = 32
"""Number of bits of a shard's index within its variant."""


def shard_id(variant: int, index: int = 0) -> int:
    """Return the id of a shard, which is unique in all variants of a split.

    Args:
        index: number of earlier shards of the variant that are not empty.
    """
    return variant << _INDEX_BITS | index


def variant_of(shard: int) -> int:
    """Return the variant of the shard with this id."""
    return shard >> _INDEX_BITS


class SplitShards:
    """Shards of a split that hold buckets. The entries of a variant are decoded when needed."""

    def __init__(self, manifest: Manifest, split: str) -> None:
        self._manifest = manifest
        self._split = split
        self._entries: dict[int, list[ShardEntry]] = {}
        self._first_numbers: dict[int, NDArray[np.int64]] = {}
        self.buckets: Final = [
            manifest.splits_of(variant)[split].buckets if variant else self._buckets_of_first()
            for variant in range(manifest.variants)
        ]
        """Number of buckets of each variant."""
        self._first_of_variant = [0, *accumulate(self.buckets)]

    def _buckets_of_first(self) -> int:
        return sum(entry.buckets for entry in self.entries(0))

    def entries(self, variant: int) -> list[ShardEntry]:
        """Return the entries of a variant's shards.

        Raises:
            ManifestError: the manifest is damaged.
        """
        found = self._entries.get(variant)
        if found is None:
            shards = self._manifest.shards_of(variant)[self._split]
            found = self._entries[variant] = [entry for entry in shards if entry.buckets]
        return found

    def counts(self, variant: int) -> NDArray[np.int64]:
        """Return the number of buckets of each shard of a variant, int64[S]."""
        return np.array([entry.buckets for entry in self.entries(variant)], dtype=np.int64)

    def entry(self, shard: int) -> ShardEntry:
        """Return the entry of the shard with this id."""
        variant = variant_of(shard)
        return self.entries(variant)[shard - shard_id(variant)]

    def number(self, shard: int, row: int) -> int:
        """Return the number, in stored order, of the bucket in a row of a shard."""
        variant = variant_of(shard)
        return int(self._numbers(variant)[shard - shard_id(variant)]) + row

    def find(self, number: int) -> tuple[int, int]:
        """Return shard and row of a bucket by its number in stored order."""
        variant = bisect_right(self._first_of_variant, number) - 1
        numbers = self._numbers(variant)
        index = int(np.searchsorted(numbers, number, side="right")) - 1
        return shard_id(variant, index), number - int(numbers[index])

    def _numbers(self, variant: int) -> NDArray[np.int64]:
        """Return the number of each shard's first bucket, and the end, int64[S + 1]."""
        found = self._first_numbers.get(variant)
        if found is None:
            before = [self._first_of_variant[variant]]
            found = np.cumsum(np.concatenate([before, self.counts(variant)]))
            self._first_numbers[variant] = found
        return found
