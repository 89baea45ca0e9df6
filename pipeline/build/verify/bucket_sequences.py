"""Find and measure the sequences in a record batch of buckets.

This module does not use the kernels that wrote the buckets. Therefore it also finds their errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.verify.row_file import HASH_HALVES
from pipeline.build.verify.sequence_kernel import find_ends, measure_sequences
from pipeline.build.verify.verify_task import BucketRules
from pipeline.reader.arrow_columns import numbers
from schemas.errors import DatasetError
from schemas.vocabulary import VOCABULARIES

_CHANGED = "a shard changed while it was read; run the same command again"


@dataclass(frozen=True, slots=True)
class BucketSequences:
    """The N sequences of a record batch, without <cls>, <eos> and padding.

    ids:     uint8[T], tokens of all buckets
    begin:   int64[N], index of each sequence's first residue in `ids`
    end:     int64[N], index after each sequence's last residue in `ids`
    hash:    HASH_HALVES[N], xxh3_128 of each sequence's residues
    unknown: int64[N], number of `<unk>` tokens in each sequence
    ordinal: int64[N], ordinal of each sequence's record: its number among all input records
    start:   int64[N], index of each sequence's first residue in its record
    bucket:  int64[N], row of each sequence's bucket in the batch
    """

    ids: NDArray[np.uint8]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    hash: NDArray[Any]
    unknown: NDArray[np.int64]
    ordinal: NDArray[np.int64]
    start: NDArray[np.int64]
    bucket: NDArray[np.int64]


def bucket_sequences(batch: pa.RecordBatch, rules: BucketRules) -> BucketSequences:
    """Return the sequences of a batch. The batch's buckets must obey the format's rules.

    Raises:
        DatasetError: columns of the batch contradict each other, because the shard has changed
            since it was verified.
    """
    ids = numbers(batch.column("input_ids").values, np.uint8)
    edges = numbers(batch.column("cu_seqlens").values, np.int32)
    first_edge = numbers(batch.column("cu_seqlens").offsets, np.int32)[:-1]
    counts = numbers(batch.column("num_seqs"), np.int32).astype(np.int64)
    bucket = np.repeat(np.arange(batch.num_rows), counts)
    # index in `edges` of each sequence's first edge
    at = np.arange(bucket.size) + np.repeat(first_edge - (np.cumsum(counts) - counts), counts)
    begin = edges[at] + bucket * rules.capacity + 1
    last = edges[at + 1] + bucket * rules.capacity
    ordinal = _listed(batch.column("record"), np.int64)
    start = _listed(batch.column("start"), np.int32).astype(np.int64)
    if not ordinal.size == start.size == bucket.size:
        raise DatasetError(_CHANGED)
    if bucket.size and not (begin.min() > 0 and (begin < last).all() and last.max() <= ids.size):
        raise DatasetError(_CHANGED)
    vocabulary = VOCABULARIES[rules.vocabulary]
    end = np.empty_like(begin)
    find_ends(ids, begin, last, vocabulary.eos, end)
    hashes, unknown = hashes_and_unknown(ids, begin, end, vocabulary.unk)
    return BucketSequences(ids, begin, end, hashes, unknown, ordinal, start, bucket)


def hashes_and_unknown(
    ids: NDArray[np.uint8], begin: NDArray[np.int64], end: NDArray[np.int64], unk: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the hash and the number of unknown letters of N sequences.

    Args:
        ids: uint8[T], token ids.
        begin, end: int64[N], edges of each sequence's residues in `ids`.
        unk: id of `<unk>`.
    Returns:
        HASH_HALVES[N] and int64[N].
    """
    high, low = (np.empty(begin.size, dtype=np.uint64) for _ in range(2))
    unknown = np.empty_like(begin)
    measure_sequences(ids, begin, end, unk, high, low, unknown)
    hashes = np.empty(begin.size, dtype=HASH_HALVES)
    hashes["high"], hashes["low"] = high, low
    return hashes, unknown


def _listed(lists: pa.ListArray, dtype: type[np.generic]) -> NDArray[Any]:
    """Return the numbers of all lists end to end.

    pyarrow's `flatten` would import pyarrow.compute, which takes 0.2 s.
    """
    offsets = numbers(lists.offsets, np.int32)
    return numbers(lists.values, dtype)[offsets[0] : offsets[-1]]
