"""What a build would make of sequences: buckets, shards, bytes. Packs their lengths as the build would, but in a shuffle of its own.

Buckets and fill are within a few hundredths of a percent of what is built then, bytes within a few percent. Costs 0.3 µs a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from packers import PACKERS
from pipeline.options import PreprocessOptions
from pipeline.report.lengths import Counted
from pipeline.report.waste import round_up_all, shuffled
from pipeline.statistics import SplitStatistics

_BUCKET_BYTES: Final = 40
"""Of a bucket in a shard, beside its tokens: its numbers, offsets, and its part of Arrow's framing."""
_SEQUENCE_BYTES: Final = 16
"""Of a sequence in a shard: its end, record and start."""
_RECORD_BYTES: Final = 26
"""Of a row of records/, beside its id: its hash, and numbers as differences."""
_ID_SHARE: Final = 0.66
"""Of an id's bytes after lz4."""


@dataclass(frozen=True, slots=True)
class PredictedSplit:
    """shards and bytes: of the whole split."""

    statistics: SplitStatistics
    shards: int
    bytes: int


def predict_split(sequences: Counted, options: PreprocessOptions, partitions: int) -> PredictedSplit:
    """Pack sequences a partition at a time, then what the partitions leave."""
    statistics = SplitStatistics(capacity=options.capacity, longest=options.longest_span)
    shards = 0
    rests = []
    for lengths in np.array_split(shuffled(sequences, options.seed).astype(np.int64), partitions):
        bucket = _pack(lengths, options, final=False)
        rests.append(lengths[bucket < 0])
        shards += _add(statistics, lengths[bucket >= 0], bucket[bucket >= 0].astype(np.int64), options)
    rest = np.concatenate(rests)
    shards += _add(statistics, rest, _pack(rest, options, final=True).astype(np.int64), options)
    size = statistics.buckets * (options.capacity + _BUCKET_BYTES) + statistics.sequences * _SEQUENCE_BYTES
    return PredictedSplit(statistics, shards, size)


def records_bytes(records: int, id_bytes: int) -> int:
    """About how many bytes records/ take."""
    return round(_RECORD_BYTES * records + _ID_SHARE * id_bytes)


def _pack(lengths: NDArray[np.int64], options: PreprocessOptions, *, final: bool) -> NDArray[np.int32]:
    spans = round_up_all(lengths, options.length_multiple)
    return PACKERS[options.packer](spans, capacity=options.capacity, max_seqs=options.most_seqs, final=final)


def _add(statistics: SplitStatistics, lengths: NDArray[np.int64], bucket: NDArray[np.int64], options: PreprocessOptions) -> int:
    """Count the buckets of one partition; how many shards they make."""
    if not lengths.size:
        return 0
    spans = round_up_all(lengths, options.length_multiple)
    tail = options.capacity - np.bincount(bucket, weights=spans).astype(np.int64)
    statistics.add_buckets(lengths, spans, bucket, tail, -(-tail // options.longest_span))
    return -(-tail.size // max(1, (options.shard_mb << 20) // options.capacity))
