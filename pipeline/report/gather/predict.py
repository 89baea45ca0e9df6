"""What a build would make of records: it packs their lengths as the build would, partition by partition, in the build's own order.

Buckets, shards and slots come out as they will; bytes within a few percent. Costs 0.5 µs a sequence.
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
from pipeline.build.reduce_stage.deduplicate import shuffle_order, shuffled_sequences
from pipeline.build.reduce_stage.write_shards import Sequences
from pipeline.build.split_statistics import SplitStatistics
from pipeline.build.stages import RESTS_TOGETHER
from pipeline.report.gather.assemble import PackedSplit
from pipeline.report.gather.waste import round_up_all
from schemas.shard import SPLITS

_FILE_BYTES: Final = 2_000
"""Of a shard or a records/ file whatever it holds: its schema, twice."""
_BUCKET_BYTES: Final = 38
"""Of a bucket, beside its tokens: its numbers, offsets, and its part of Arrow's framing."""
_SEQUENCE_BYTES: Final = 16
"""Of a sequence: its end, record and start."""
_RECORD_BYTES: Final = 23
"""Of a row of records/, beside its id: its hash, and numbers as differences."""


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
        """Return the split, its bytes about those of uncompressed shards."""
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
    """Sequences that fill no bucket yet. valid: bool[N], whether they belong to the valid split."""

    sequences: Sequences
    valid: NDArray[np.bool_]


def predict(
    residues: NDArray[np.int64],
    status: NDArray[np.int8],
    hashes: NDArray[np.void],
    cropped: NDArray[np.void],
    options: DatasetOptions,
    partitions: int,
) -> dict[str, PackedSplit]:
    """Pack the kept ones of N records, given in input order.

    Args:
        residues: int64[N]; status: int8[N], duplicates found; hashes: HASH[N]; cropped: HASH[N], of their first pieces.
        partitions: of the build's plan.
    """
    found = {
        split: _Buckets(SplitStatistics(capacity=options.capacity, longest=options.longest_span))
        for split in SPLITS
    }
    partition = partitions_of(cropped, partitions)
    order = np.argsort(partition, kind="stable")
    edges = np.searchsorted(partition[order], np.arange(partitions + 1))
    rests = []
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        chosen = order[first:last]
        sequences, row = shuffled_sequences(
            residues[chosen],
            status[chosen],
            hashes[chosen],
            chosen,
            np.zeros(chosen.size, dtype=np.int64),
            options,
        )
        rests.append(
            _pack(
                _Left(sequences, in_valid(cropped[chosen], options.valid_fraction)[row]),
                found,
                options,
                final=False,
            )
        )
    while len(rests) > RESTS_TOGETHER:
        rests = [
            _pack(_joined(rests[i : i + RESTS_TOGETHER]), found, options, final=False)
            for i in range(0, len(rests), RESTS_TOGETHER)
        ]
    _pack(_joined(rests), found, options, final=True)
    return {split: buckets.packed(options) for split, buckets in found.items()}


def records_bytes(records: int, ids: bytes, id_bytes: int, partitions: int) -> int:
    """About how many bytes records/ take.

    Args:
        ids: the first bytes of them, enough to see how they compress; id_bytes: size of all.
    """
    share = len(pa.compress(ids, codec="lz4_raw")) / len(ids) if ids else 0
    return round((partitions + 1) * _FILE_BYTES + records * _RECORD_BYTES + share * id_bytes)


def _joined(rests: Sequence[_Left]) -> _Left:
    """The rests of several partitions, in shuffled order."""
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
    """Count the buckets of each split; what fills none is returned."""
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
