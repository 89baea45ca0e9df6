"""Forecast a build: pack the lengths of the records, partition by partition, in the build's order.

A partition is the group of records, chosen by hash, that one task of the build packs. The predicted
numbers of buckets, shards and slots are exact. The predicted number of bytes is wrong by at most a
few percent. A forecast takes 0.5 µs per sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from packers import PACKERS
from pipeline.build.arrays.header_arrays import text_array
from pipeline.build.arrays.sequence_hashes import partitions_of, split_of
from pipeline.build.options import DatasetOptions
from pipeline.build.reduce_stage.record_table import header_table
from pipeline.build.reduce_stage.sequences import (
    Sequences,
    round_up_all,
    shuffle_order,
    shuffled_sequences,
)
from pipeline.build.reduce_stage.write_records import records_writer
from pipeline.build.split_statistics import SplitStatistics
from pipeline.build.stages import RESTS_TOGETHER
from pipeline.inputs.headers import parse_headers
from pipeline.report.gather.assemble import PackedSplit
from pipeline.report.gather.read_sequences import ReadRecords
from schemas.shard import SPLITS

_FILE_BYTES: Final = 2_000
"""Size in bytes of an empty shard, or of an empty file of records/. Each file stores its schema
twice."""
_BUCKET_BYTES: Final = 38
"""Size in bytes of a bucket without its tokens: counts, offsets, and a part of Arrow's headers."""
_SEQUENCE_BYTES: Final = 16
"""Size in bytes of a sequence's entries in `cu_seqlens`, `record` and `start`."""
_RECORD_BYTES: Final = 23
"""Size in bytes of a row of records/ without its header: a hash, and delta-encoded numbers."""


@dataclass(slots=True)
class _Buckets:
    """Statistics of one split's buckets, and the number of its shards."""

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
        """Return the statistics of the split. `bytes` is an estimate for uncompressed shards."""
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
    """Sequences that have no bucket yet.

    split: int8[N], split of each sequence, an index into SPLITS
    """

    sequences: Sequences
    split: NDArray[np.int8]


def predict(
    records: ReadRecords, status: NDArray[np.int8], options: DatasetOptions, partitions: int
) -> dict[str, PackedSplit]:
    """Pack the kept records. Return the statistics of each split, by its name.

    Args:
        status: int8[N], index into STATUS_CODES for each record; duplicates are already marked.
        partitions: number of partitions in the build's plan.
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
            options.seed,
        )
        split = split_of(records.cropped[chosen], options.fractions)[row]
        rests.append(_pack(_Left(sequences, split), found, options, final=partitions == 1))
    while len(rests) > RESTS_TOGETHER:
        rests = [
            _pack(_joined(rests[i : i + RESTS_TOGETHER]), found, options, final=False)
            for i in range(0, len(rests), RESTS_TOGETHER)
        ]
    _pack(_joined(rests), found, options, final=True)
    return {split: buckets.packed(options) for split, buckets in found.items()}


def records_bytes(records: int, headers: Sequence[tuple[bytes, bytes]], partitions: int) -> int:
    """Return the approximate size of records/ in bytes.

    Args:
        records: number of records.
        headers: id and description of some records. These headers are written as in records/, to
            measure the size of the columns that hold values from headers.
        partitions: number of partitions. A build writes one file for each partition. A build with
            several partitions writes at least one further file, for the sequences left without a
            bucket.
    """
    of_header = _header_bytes(headers) / len(headers) if headers else 0
    files = partitions + (partitions > 1)
    return round(files * _FILE_BYTES + records * (_RECORD_BYTES + of_header))


def _header_bytes(headers: Sequence[tuple[bytes, bytes]]) -> int:
    """Return the size in bytes that the values from these headers have in records/."""
    ids, descriptions = (
        (
            np.frombuffer(b"".join(texts), dtype=np.uint8),
            np.cumsum([0, *map(len, texts)], dtype=np.int64),
        )
        for texts in zip(*headers, strict=True)
    )
    table = header_table(parse_headers(*ids, *descriptions)).append_column("id", text_array(*ids))
    sizes = []
    for rows in (table.slice(0, 0), table):
        written = pa.BufferOutputStream()
        with records_writer(written, table.schema) as writer:
            writer.write_table(rows)
        sizes.append(written.getvalue().size)
    return int(sizes[1] - sizes[0])


def _joined(rests: Sequence[_Left]) -> _Left:
    """Return the sequences that several partitions left without a bucket, in shuffled order."""
    columns = {
        name: np.concatenate([getattr(rest.sequences, name) for rest in rests])
        for name in Sequences.__dataclass_fields__
    }
    sequences = Sequences(**columns)
    order = shuffle_order(sequences)
    return _Left(sequences.take(order), np.concatenate([rest.split for rest in rests])[order])


def _pack(
    part: _Left, found: dict[str, _Buckets], options: DatasetOptions, *, final: bool
) -> _Left:
    """Pack `part`, and add the buckets of each split to `found`.

    final: True to pack every sequence, even into buckets that are only partly full
    Returns:
        The sequences that are left without a bucket.
    """
    left = np.zeros(len(part.sequences), dtype=np.bool_)
    for code, split in enumerate(SPLITS):
        chosen = np.flatnonzero(part.split == code)
        lengths = part.sequences.residues[chosen] + 2
        spans = round_up_all(lengths, options.length_multiple)
        bucket = PACKERS[options.packer](
            spans, capacity=options.capacity, max_seqs=options.most_seqs, final=final
        )
        left[chosen[bucket < 0]] = True
        full = bucket >= 0
        found[split].add(lengths[full], spans[full], bucket[full].astype(np.int64), options)
    return _Left(part.sequences.take(left), part.split[left])
