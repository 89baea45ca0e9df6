"""Rows of records/ as arrays: one row for each record of a partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import take_bytes
from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.build.reduce_stage.write_shards import WrittenSplit

TEXTS: Final = ("id", "stated")
"""Fields of RecordRows that hold texts."""


@dataclass(slots=True, kw_only=True)
class RecordRows:
    """Rows of records/ for N records. docs/reference/format.md describes each column.

    ordinal, offset, residues, unknown: int64[N]
    id:           large_binary[N]
    stated:       large_binary[N], packed values that each header states (see `pack_headers`)
    source:       int32[N], index into the inputs
    hash:         HASH[N]
    status:       int8[N], index into `Status`
    duplicate_of: int64[N], ordinal of the kept record that a duplicate repeats, -1 for none
    match:        int64[N], key of the match of an excluded record (see `match_keys`), -1 for none
    split:        int8[N], index into SPLITS, -1 for none
    shard:        int32[N], index into `shard_names`, -1 for none
    bucket:       int32[N], row in the shard, -1 for none
    cluster:      uint64[N], key of the record's joined cluster (`--clusters`), 0 for none
    weight:       uint64[N], weight of the record in draws (`--sample-clusters`), 0 without a
                  cluster; only draw tasks need it
    """

    ordinal: NDArray[np.int64]
    id: pa.Array
    stated: pa.Array
    source: NDArray[np.int32]
    offset: NDArray[np.int64]
    residues: NDArray[np.int64]
    unknown: NDArray[np.int64]
    hash: NDArray[np.void]
    status: NDArray[np.int8]
    duplicate_of: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    match: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    split: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, dtype=np.int8))
    shard: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    bucket: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    cluster: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    weight: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    shard_names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("duplicate_of", "match", "split", "shard", "bucket"):
            if getattr(self, name).size != self.ordinal.size:
                setattr(self, name, np.full(self.ordinal.size, -1, dtype=getattr(self, name).dtype))
        for name in ("cluster", "weight"):
            if getattr(self, name).size != self.ordinal.size:
                setattr(self, name, np.zeros(self.ordinal.size, dtype=np.uint64))

    def __len__(self) -> int:
        return int(self.ordinal.size)

    def place(
        self, row: NDArray[np.int64], is_first: NDArray[np.bool_], written: WrittenSplit
    ) -> None:
        """Set shard and bucket of the records whose first sequence was written.

        Args:
            row: int64[M], for each sequence of the split, the index of its record in these rows.
            is_first: bool[M], True for the first sequence of a record.
        """
        first = np.flatnonzero(is_first & ~written.left_over)
        self.shard[row[first]] = written.shard[first] + len(self.shard_names)
        self.bucket[row[first]] = written.bucket[first]
        self.shard_names += [entry.name for entry in written.entries]

    def take(self, indices: NDArray[np.int64]) -> RecordRows:
        """Return the rows at `indices`, int64[M]."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        arrays = {
            name: value[indices] for name, value in values.items() if isinstance(value, np.ndarray)
        }
        texts = {name: take_bytes(values[name], indices) for name in TEXTS}
        return RecordRows(**{**values, **arrays, **texts})

    def part(self, first: int, last: int) -> RecordRows:
        """Return the rows first … last - 1, without a copy."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        arrays = {
            name: value[first:last]
            for name, value in values.items()
            if isinstance(value, np.ndarray)
        }
        texts = {name: values[name].slice(first, last - first) for name in TEXTS}
        return RecordRows(**{**values, **arrays, **texts})

    def followed_by(self, *others: RecordRows) -> RecordRows:
        """Return these rows and then the rows of `others`; `shard_names` must be the same."""
        every = (self, *others)
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                # np.concatenate turns big-endian hashes into little-endian; astype turns them back
                values[name] = np.concatenate([getattr(rows, name) for rows in every]).astype(
                    value.dtype, copy=False
                )
        for name in TEXTS:
            values[name] = pa.concat_arrays(
                [getattr(rows, name) for rows in every], memory_pool=pa.system_memory_pool()
            )
        return RecordRows(**values)

    def sorted_by_ordinal(self) -> RecordRows:
        """Return the rows sorted by ordinal."""
        if (self.ordinal[:-1] < self.ordinal[1:]).all():
            return self
        return self.take(np.argsort(self.ordinal))


def empty_rows() -> RecordRows:
    """Return `RecordRows` without rows."""
    columns: dict[str, Any] = {
        name: np.empty(0, dtype=np.int64) for name in ("ordinal", "offset", "residues", "unknown")
    }
    columns |= {
        "source": np.empty(0, dtype=np.int32),
        "status": np.empty(0, dtype=np.int8),
        "hash": np.empty(0, dtype=HASH),
    }
    nothing = pa.py_buffer(bytes(8))
    columns |= {
        name: pa.Array.from_buffers(pa.large_binary(), 0, [None, nothing, nothing])
        for name in TEXTS
    }
    return RecordRows(**columns)
