"""Pack sequences into buckets of exactly `capacity` tokens. Write buckets as Arrow IPC shards.

A sequence's span is its tokens, `<cls>` and `<eos>` included, and the padding that rounds their
number up to a multiple of `--length-multiple`. A bucket's tail is the padding after its last span.
The tail is cut into tail pieces, which are no longer than the longest span that the options allow.
Therefore attention over a tail piece costs no more than attention over the longest allowed span.
"""

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
from pipeline.build.reduce_stage.sequences import Sequences, round_up_all
from pipeline.build.split_statistics import SplitStatistics
from pipeline.storage.atomic_write import Finisher
from pipeline.storage.folder import Folder
from schemas.manifest_entries import ShardEntry
from schemas.shard import BATCH_BUCKETS, shard_schema
from schemas.vocabulary import ESM2

_ID_LIMIT: Final = 256
_UNCOUNTED: Final = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class WrittenSplit:
    """Result of packing one split's N sequences.

    entries:      manifest entries of the shards
    left_over:    bool[N], mask of the sequences that did not fill a bucket
    shard:        int64[N], each sequence's shard, as an index into `entries`
    bucket:       int64[N], each sequence's bucket, as a row number in that shard
    token_counts: int64[256], number of occurrences of each token id in the shards, without
        padding; all 0 if tokens were not counted
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
    counts_tokens: bool,
    out: Folder,
    finisher: Finisher,
) -> WrittenSplit:
    """Pack sequences and write the buckets as `<split>/<stem>-<n>.arrow`.

    Args:
        tokens: uint8[T], residue tokens that `sequences.begin` points into.
        final: True to pack all sequences, even if some buckets are then not full.
        counts_tokens: True to count the tokens of the shards.
        out: the dataset's folder.
        finisher: object that syncs or uploads the shards in the background.
    Raises:
        BuildError: a shard cannot be written.
    """
    spans = sequences.residues + 2
    spans = round_up_all(spans, options.length_multiple)
    packer = PACKERS[options.packer]
    bucket = packer(spans, capacity=options.capacity, max_seqs=options.most_seqs, final=final)
    buckets = int(bucket.max(initial=-1)) + 1
    shards = -(-buckets // options.buckets_per_shard)
    cuts = [buckets * i // max(shards, 1) for i in range(shards + 1)]
    result = _placement(bucket, cuts, options)
    packed = _PackedSplit(tokens, sequences, spans, bucket, buckets, options)
    packed.counts_tokens = counts_tokens
    for n, (first, last) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
        name = f"{split}/{stem}-{n}.arrow"
        result.entries.append(_write_shard(packed, first, last, name, result, out, finisher))
    return result


def _placement(bucket: NDArray[np.int32], cuts: list[int], options: DatasetOptions) -> WrittenSplit:
    """Compute the shard and row of each sequence, before any shard is written.

    Args:
        bucket: int32[N], bucket of each sequence in its split; -1 for a left-over sequence.
        cuts: index of the first bucket of each shard; the last value is the number of buckets.
    """
    shard = np.searchsorted(cuts, bucket, side="right").astype(np.int64) - 1
    has_shards = len(cuts) > 1
    return WrittenSplit(
        entries=[],
        left_over=bucket < 0,
        shard=shard,
        bucket=bucket - np.array([*cuts, 0])[shard] if has_shards else np.zeros_like(shard),
        token_counts=np.zeros(_ID_LIMIT, dtype=np.int64),
        statistics=SplitStatistics(capacity=options.capacity, longest=options.longest_span),
    )


class _PackedSplit:
    """A split's sequences in the order of their buckets, and a buffer for a record batch."""

    def __init__(
        self,
        tokens: NDArray[np.uint8],
        sequences: Sequences,
        spans: NDArray[np.int64],
        bucket: NDArray[np.int32],
        buckets: int,
        options: DatasetOptions,
    ) -> None:
        # stable: inside a bucket, sequences stay in shuffled order
        order = np.argsort(bucket.astype(np.int16) if buckets < 1 << 15 else bucket, kind="stable")
        order = order[np.count_nonzero(bucket < 0) :]
        self.tokens = tokens
        self.sequences = sequences.take(order)
        self.spans = spans[order]
        self.edges = np.searchsorted(bucket[order], np.arange(buckets + 1))
        self.capacity = options.capacity
        self.longest_span = options.longest_span
        self.schema = shard_schema(options.capacity)
        self.compression = None if options.compression == "none" else options.compression
        self.counts_tokens = True
        self._ids = np.empty(BATCH_BUCKETS * options.capacity, dtype=np.uint8)

    def batch(self, first: int, last: int, result: WrittenSplit) -> tuple[pa.RecordBatch, int]:
        """Return buckets `first` … `last` - 1 as a record batch, and its number of real tokens.

        The buckets are added to the statistics of `result`. The next call overwrites the token ids
        of this batch.
        """
        edges, buckets = self.edges[first : last + 1], last - first
        part = slice(int(edges[0]), int(edges[-1]))
        spans, lengths = self.spans[part], self.sequences.residues[part] + 2
        count = np.diff(edges)
        bucket = np.repeat(np.arange(buckets), count)
        used = np.bincount(bucket, weights=spans, minlength=buckets).astype(np.int64)
        tail = self.capacity - used
        pieces = -(-tail // self.longest_span)
        cu, cu_offsets = _cu_seqlens(spans, count, pieces, self.capacity, self.longest_span)
        counts = result.token_counts if self.counts_tokens else _UNCOUNTED
        ids = self._filled(part, bucket, buckets, counts)
        result.statistics.add_buckets(lengths, spans, bucket, tail, pieces)
        tokens = np.bincount(bucket, weights=lengths, minlength=buckets).astype(np.int32)
        longest = np.maximum.reduceat(spans, edges[:-1] - part.start).astype(np.int32)
        offsets = number_array((edges - part.start).astype(np.int32))
        ordinals = number_array(self.sequences.ordinal[part])
        starts = number_array(self.sequences.start[part].astype(np.int32))
        types = self.schema.types
        arrays = [
            pa.FixedSizeListArray.from_arrays(number_array(ids), type=types[0]),
            pa.ListArray.from_arrays(number_array(cu_offsets), number_array(cu), type=types[1]),
            number_array(count.astype(np.int32)),
            number_array(tokens),
            number_array(longest),
            pa.ListArray.from_arrays(offsets, ordinals, type=types[5]),
            pa.ListArray.from_arrays(offsets, starts, type=types[6]),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), int(tokens.sum())

    def _filled(
        self,
        part: slice,
        bucket: NDArray[np.int64],
        buckets: int,
        token_counts: NDArray[np.int64],
    ) -> NDArray[np.uint8]:
        """Return the token ids of a batch's buckets, uint8[buckets · capacity]; count the ids."""
        ids = self._ids[: buckets * self.capacity]
        fill_buckets(
            self.tokens,
            self.sequences.begin[part],
            self.sequences.residues[part],
            self.spans[part],
            bucket,
            ids,
            self.capacity,
            ESM2.cls,
            ESM2.pad,
            ESM2.eos,
            token_counts,
        )
        return ids


def _write_shard(
    packed: _PackedSplit,
    first: int,
    last: int,
    name: str,
    result: WrittenSplit,
    out: Folder,
    finisher: Finisher,
) -> ShardEntry:
    """Write buckets `first` … `last` - 1 as one shard; return its manifest entry."""
    tokens = 0
    options = pa.ipc.IpcWriteOptions(compression=packed.compression, use_threads=False)
    with (
        out.written(name, durable=False, write_back=True, finisher=finisher) as file,
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
    """Return the concatenated cu_seqlens of B buckets, int32[…], and the index at which each bucket
    begins in this array, int32[B + 1].

    The cu_seqlens of a bucket are the offsets of its spans and tail pieces, from 0 to `capacity`.

    Args:
        spans: int64[N], span of each sequence, in the order of the buckets.
        count, pieces: int64[B], number of sequences and tail pieces of each bucket.
        piece: maximum length of a tail piece, in tokens.
    """
    sizes = count + pieces + 1
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    cu = np.empty(int(offsets[-1]), dtype=np.int32)
    fill_cu_seqlens(spans, count, pieces, capacity, piece, cu)
    return cu, offsets.astype(np.int32)
