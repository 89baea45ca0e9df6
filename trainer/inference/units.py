"""Divide a dataset into units of work: groups of consecutive buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pipeline.reader import ShardReader
from schemas.manifest import Manifest
from schemas.shard import SPLITS
from trainer.inference.windows import Window, windows_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """Buckets first … end - 1 of a split, in stored order. `number` is unique in the dataset.

    piece, pieces: the unit is this piece of the work on these buckets, out of `pieces`.
    """

    number: int
    split: str
    first: int
    end: int
    piece: int = 0
    pieces: int = 1


class Units:
    """All units of a dataset. They hold each sequence of variant 0 exactly once."""

    def __init__(
        self,
        url: str | Path,
        manifest: Manifest,
        *,
        buckets: int,
        pieces: int = 1,
        storage: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Args:
        url: folder or URL of the dataset.
        manifest: manifest of the generation to read.
        buckets: number of buckets in a unit.
        pieces: number of units for the same buckets, if the work on a bucket is divided.
        storage: arguments of ShardReader about the cache.
        """
        self._storage: Final = storage
        self._url, self._manifest = url, manifest
        self._readers: dict[str, ShardReader] = {}
        self.all: list[Unit] = []
        for split in SPLITS:
            total = manifest.splits[split].buckets if split in manifest.splits else 0
            for first in range(0, total, buckets):
                end = min(first + buckets, total)
                self.all += [
                    Unit(
                        number=len(self.all) + piece,
                        split=split,
                        first=first,
                        end=end,
                        piece=piece,
                        pieces=pieces,
                    )
                    for piece in range(pieces)
                ]

    def windows(self, unit: Unit, *, longest: int, overlap: int) -> list[Window]:
        """Return the windows of a unit; see `windows_of`.

        Raises:
            DatasetError: a shard is missing or damaged, or cannot be read.
        """
        reader = self._reader(unit.split)
        return [
            window
            for number in range(unit.first, unit.end)
            for window in windows_of(
                reader[number],
                reader.records(number),
                reader.starts(number),
                longest=longest,
                overlap=overlap,
            )
        ]

    def _reader(self, split: str) -> ShardReader:
        if split not in self._readers:
            self._readers[split] = ShardReader(
                self._url, split, prefetch=0, generation=self._manifest.digest, **self._storage
            )
        return self._readers[split]

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
