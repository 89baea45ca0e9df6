"""Forecast of a build: packs the lengths of records partition by partition, in the build's order.

Buckets, shards and slots are exact; bytes are off by at most a few percent. Costs 0.5 µs per
sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from packers import PACKERS
from pipeline.build.arrays.sequence_hashes import in_valid, partitions_of
from pipeline.build.options import DatasetOptions
from pipeline.build.reduce_stage.sequences import (
    Sequences,
    round_up_all,
    shuffle_order,
    shuffled_sequences,
)
from pipeline.build.split_statistics import SplitStatistics
from pipeline.build.stages import RESTS_TOGETHER
from pipeline.report.gather.assemble import PackedSplit
from pipeline.report.gather.read_sequences import ReadRecords
from schemas.shard import SPLITS

_FILE_BYTES: Final = 2_000
"""Bytes of an empty shard or records/ file: its schema, twice."""
_BUCKET_BYTES: Final = 38
"""Bytes of a bucket without its tokens: its numbers, offsets, and its part of Arrow's framing."""
_SEQUENCE_BYTES: Final = 16
"""Bytes of a sequence without its tokens: its end, record and start."""
_RECORD_BYTES: Final = 23
"""Bytes of a row of records/ without its id: its hash, and numbers as differences."""


@dataclass(slots=True)
class _Buckets:
    """The buckets of one split so far, and the number of its shards."""

    statistics: SplitStatistics
    shards: int = 0

    def add(
        self,
        lengths: NDArray[np.int64],
        spans: NDArray[np.int64],
        bucket: NDArray[np.int64],
        options: DatasetOptions,
    ) -> None:
        """Count the buckets of one partition."""
        if not lengths.size:
            return
        tail = options.capacity - np.bincount(bucket, weights=spans).astype(np.int64)
        self.statistics.add_buckets(lengths, spans, bucket, tail, -(-tail // options.longest_span))
        self.shards += -(-tail.size // options.buckets_per_shard)

    def packed(self, options: DatasetOptions) -> PackedSplit:
        """Return the split, with the approximate bytes of uncompressed shards."""
        found = self.statistics
        return PackedSplit(
            totals=found.totals(),
            histograms=found.histograms(),
            shards=self.shards,
            bytes=self.shards * _FILE_BYTES
            + found.buckets * (options.capacity + _BUCKET_BYTES)
            + found.sequences * _SEQUENCE_BYTES,
        )


@dataclass(frozen=True, slots=True)
class _Left:
    """Sequences that do not fill a bucket yet. valid: bool[N], members of the valid split."""

    sequences: Sequences
    valid: NDArray[np.bool_]


def predict(
    records: ReadRecords, status: NDArray[np.int8], options: DatasetOptions, partitions: int
) -> dict[str, PackedSplit]:
    """Pack the kept records and return each split.

    Args:
        status: int8[N], index into STATUS_CODES, after duplicates were found.
        partitions: number of partitions of the build's plan.
    """
    found = {
        split: _Buckets(SplitStatistics(capacity=options.capacity, longest=options.longest_span))
        for split in SPLITS
    }
    partition = partitions_of(records.cropped, partitions)
    order = np.argsort(partition, kind="stable")
    edges = np.searchsorted(partition[order], np.arange(partitions + 1))
    rests = []
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        chosen = order[first:last]
        sequences, row = shuffled_sequences(
            records.residues[chosen],
            status[chosen],
            records.hashes[chosen],
            chosen,
            np.zeros(chosen.size, dtype=np.int64),
            options,
        )
        valid = in_valid(records.cropped[chosen], options.valid_fraction)[row]
        rests.append(_pack(_Left(sequences, valid), found, options, final=partitions == 1))
    while len(rests) > RESTS_TOGETHER:
        rests = [
            _pack(_joined(rests[i : i + RESTS_TOGETHER]), found, options, final=False)
            for i in range(0, len(rests), RESTS_TOGETHER)
        ]
    _pack(_joined(rests), found, options, final=True)
    return {split: buckets.packed(options) for split, buckets in found.items()}


def records_bytes(records: int, ids: bytes, id_bytes: int, partitions: int) -> int:
    """Return approximately how many bytes records/ take.

    Args:
        ids: a sample, to see how ids compress.
        id_bytes: of all ids.
        partitions: each writes a file, and so does the rest if there are several.
    """
    share = len(pa.compress(ids, codec="lz4_raw")) / len(ids) if ids else 0
    files = partitions + (partitions > 1)
    return round(files * _FILE_BYTES + records * _RECORD_BYTES + share * id_bytes)


def _joined(rests: Sequence[_Left]) -> _Left:
    """Return the remaining sequences of several partitions, in shuffled order."""
    columns = {
        name: np.concatenate([getattr(rest.sequences, name) for rest in rests])
        for name in Sequences.__dataclass_fields__
    }
    sequences = Sequences(**columns)
    order = shuffle_order(sequences)
    return _Left(sequences.take(order), np.concatenate([rest.valid for rest in rests])[order])


def _pack(
    part: _Left, found: dict[str, _Buckets], options: DatasetOptions, *, final: bool
) -> _Left:
    """Count the buckets of each split, and return the sequences that fill none."""
    left = np.zeros(len(part.sequences), dtype=np.bool_)
    for code, split in enumerate(SPLITS):
        chosen = np.flatnonzero(part.valid == bool(code))
        lengths = part.sequences.residues[chosen] + 2
        spans = round_up_all(lengths, options.length_multiple)
        bucket = PACKERS[options.packer](
            spans, capacity=options.capacity, max_seqs=options.most_seqs, final=final
        )
        left[chosen[bucket < 0]] = True
        full = bucket >= 0
        found[split].add(lengths[full], spans[full], bucket[full].astype(np.int64), options)
    return _Left(part.sequences.take(left), part.valid[left])
