"""Packed sequences written as shards: buckets of exactly `capacity` tokens, in Arrow IPC files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from packers import PACKERS
from pipeline.build.arrays.arrow_arrays import number_array
from pipeline.build.arrays.bucket_kernel import fill_buckets, fill_cu_seqlens
from pipeline.build.options import DatasetOptions
from pipeline.build.split_statistics import SplitStatistics
from pipeline.storage.atomic_write import Finisher
from pipeline.storage.folder import Folder
from schemas.manifest_entries import ShardEntry
from schemas.shard import BATCH_BUCKETS, shard_schema
from schemas.vocabulary import ESM2

_ID_LIMIT: Final = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequences:
    """N sequences of one split, in shuffled order.

    begin:   int64[N], where its residues start in the token array
    residues: int64[N], how many it has here (cropped; no specials)
    ordinal: int64[N], its record's ordinal
    start:   int64[N], the residue at which it starts in its record
    key:     uint64[N], its place in the shuffle
    """

    begin: NDArray[np.int64]
    residues: NDArray[np.int64]
    ordinal: NDArray[np.int64]
    start: NDArray[np.int64]
    key: NDArray[np.uint64]

    def __len__(self) -> int:
        return int(self.begin.size)

    def take(self, indices: NDArray[np.int64] | NDArray[np.bool_]) -> Sequences:
        return Sequences(
            begin=self.begin[indices],
            residues=self.residues[indices],
            ordinal=self.ordinal[indices],
            start=self.start[indices],
            key=self.key[indices],
        )


@dataclass(slots=True)
class WrittenSplit:
    """What came of packing one split's sequences.

    left_over: bool[N], sequences that filled no bucket
    shard, bucket: int64[N], where each sequence went: index into `entries` and row in that shard
    token_counts: int64[256], how often each token id is there
    """

    entries: list[ShardEntry]
    left_over: NDArray[np.bool_]
    shard: NDArray[np.int64]
    bucket: NDArray[np.int64]
    token_counts: NDArray[np.int64]
    statistics: SplitStatistics


def write_split(
    tokens: NDArray[np.uint8],
    sequences: Sequences,
    options: DatasetOptions,
    *,
    split: str,
    stem: str,
    final: bool,
    out: Folder,
    finisher: Finisher,
) -> WrittenSplit:
    """Pack sequences and write the buckets as `<split>/<stem>-<n>.arrow`.

    Args:
        tokens: uint8[T], residues that `sequences.begin` points into.
        final: write the last, part-filled bucket too.
        out: the dataset's folder; the shards are there when the finisher has finished.
    Raises:
        BuildError: a shard cannot be written.
    """
    spans = sequences.residues + 2
    if options.length_multiple > 1:
        spans = -(-spans // options.length_multiple) * options.length_multiple
    packer = PACKERS[options.packer]
    bucket = packer(spans, capacity=options.capacity, max_seqs=options.most_seqs, final=final)
    buckets = int(bucket.max(initial=-1)) + 1
    order = np.argsort(
        bucket.astype(np.int16) if buckets < 1 << 15 else bucket, kind="stable"
    )  # inside a bucket the shuffled order stays
    order = order[np.count_nonzero(bucket < 0) :]
    edges = np.searchsorted(bucket[order], np.arange(buckets + 1))
    shards = -(-buckets // options.buckets_per_shard)
    cuts = [buckets * i // max(shards, 1) for i in range(shards + 1)]
    result = WrittenSplit(
        entries=[],
        left_over=bucket < 0,
        shard=np.searchsorted(cuts, bucket, side="right").astype(np.int64) - 1,
        bucket=np.zeros(len(sequences), dtype=np.int64),
        token_counts=np.zeros(_ID_LIMIT, dtype=np.int64),
        statistics=SplitStatistics(capacity=options.capacity, longest=options.longest_span),
    )
    if shards:
        result.bucket = bucket - np.array([*cuts, 0])[result.shard]
    packed = _Packed(tokens, sequences.take(order), spans[order], edges, options)
    for n, (first, last) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
        name = f"{split}/{stem}-{n}.arrow"
        result.entries.append(_write_shard(packed, first, last, name, result, out, finisher))
    return result


class _Packed:
    """Sequences grouped by bucket, and the arrays that one record batch needs."""

    def __init__(
        self,
        tokens: NDArray[np.uint8],
        sequences: Sequences,
        spans: NDArray[np.int64],
        edges: NDArray[np.int64],
        options: DatasetOptions,
    ) -> None:
        self.tokens = tokens
        self.sequences = sequences
        self.spans = spans
        self.edges = edges
        self.capacity = options.capacity
        self.piece = options.longest_span
        self.schema = shard_schema(options.capacity)
        self.compression = None if options.compression == "none" else options.compression
        self._ids = np.empty(BATCH_BUCKETS * options.capacity, dtype=np.uint8)

    def batch(self, first: int, last: int, result: WrittenSplit) -> tuple[pa.RecordBatch, int]:
        """Buckets `first` … `last` - 1 as a record batch, and their real tokens. Its ids are overwritten by the next batch."""
        a, b = int(self.edges[first]), int(self.edges[last])
        sequences, spans = self.sequences, self.spans[a:b]
        count = np.diff(self.edges[first : last + 1])
        bucket = np.repeat(np.arange(last - first), count)
        used = np.bincount(bucket, weights=spans, minlength=last - first).astype(np.int64)
        tail = self.capacity - used
        pieces = -(-tail // self.piece)
        lengths = sequences.residues[a:b] + 2
        cu, cu_offsets = _cu_seqlens(spans, count, pieces, self.capacity, self.piece)
        ids = self._ids[: (last - first) * self.capacity]
        fill_buckets(
            self.tokens,
            sequences.begin[a:b],
            sequences.residues[a:b],
            spans,
            bucket,
            ids,
            self.capacity,
            ESM2.cls,
            ESM2.pad,
            ESM2.eos,
            result.token_counts,
        )
        result.statistics.add_buckets(lengths, spans, bucket, tail, pieces)
        tokens = np.bincount(bucket, weights=lengths, minlength=last - first).astype(np.int32)
        longest = np.maximum.reduceat(spans, self.edges[first:last] - a).astype(np.int32)
        offsets = number_array((self.edges[first : last + 1] - a).astype(np.int32))
        types = self.schema.types
        arrays = [
            pa.FixedSizeListArray.from_arrays(number_array(ids), type=types[0]),
            pa.ListArray.from_arrays(number_array(cu_offsets), number_array(cu), type=types[1]),
            number_array(count.astype(np.int32)),
            number_array(tokens),
            number_array(longest),
            pa.ListArray.from_arrays(offsets, number_array(sequences.ordinal[a:b]), type=types[5]),
            pa.ListArray.from_arrays(
                offsets, number_array(sequences.start[a:b].astype(np.int32)), type=types[6]
            ),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), int(tokens.sum())


def _write_shard(
    packed: _Packed,
    first: int,
    last: int,
    name: str,
    result: WrittenSplit,
    out: Folder,
    finisher: Finisher,
) -> ShardEntry:
    """Write buckets `first` … `last` - 1 as one shard."""
    tokens = 0
    options = pa.ipc.IpcWriteOptions(compression=packed.compression, use_threads=False)
    with (
        out.written(name, finisher=finisher) as file,
        pa.ipc.new_file(file, packed.schema, options=options) as writer,
    ):
        for at in range(first, last, BATCH_BUCKETS):
            batch, real = packed.batch(at, min(at + BATCH_BUCKETS, last), result)
            writer.write_batch(batch)
            tokens += real
    return ShardEntry(
        name=name, bytes=file.bytes, buckets=last - first, tokens=tokens, xxh3_128=file.xxh3_128
    )


def _cu_seqlens(
    spans: NDArray[np.int64],
    count: NDArray[np.int64],
    pieces: NDArray[np.int64],
    capacity: int,
    piece: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The cu_seqlens of several buckets end to end, int32, and where each bucket's start, int32[B + 1]."""
    sizes = count + pieces + 1
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    cu = np.empty(int(offsets[-1]), dtype=np.int32)
    fill_cu_seqlens(spans, count, pieces, capacity, piece, cu)
    return cu, offsets.astype(np.int32)
