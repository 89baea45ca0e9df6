"""Check those values of a shard's buckets that attention kernels use without a check.

A shard's hash shows that the file is the file that the manifest lists. The hash does not show that
the file was written without bugs or malice. The reader therefore checks the buckets of each shard
when it maps the shard for the first time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.reader.arrow_columns import numbers
from pipeline.reader.bucket_shape import BucketShape


def first_problem(batches: Sequence[pa.RecordBatch], shape: BucketShape) -> str | None:
    """Return the first rule that is broken, with the first bucket that breaks it, or None.

    The checks take as long as hashing the shard.

    Raises:
        pa.ArrowInvalid: offsets of a column point outside it, or a value is null.
    """
    for batch in batches:
        batch.validate(full=True)
    for rule, broken in _rules(batches, shape):
        if broken.any():
            return f"bucket {int(np.flatnonzero(broken)[0])}: {rule}"
    return None


def _rules(
    batches: Sequence[pa.RecordBatch],
    shape: BucketShape,
) -> Sequence[tuple[str, NDArray[np.bool_]]]:
    """Return the text of each rule with a mask, bool[buckets], of the buckets that break it."""
    lists = [batch.column("cu_seqlens") for batch in batches]
    lengths = np.concatenate([np.diff(numbers(each.offsets, np.int32)) for each in lists])
    if (lengths < 2).any():
        return [("cu_seqlens has fewer than two values", lengths < 2)]
    edges = np.concatenate([_values(each) for each in lists]).astype(np.int64)
    begins = np.cumsum(lengths, dtype=np.int64) - lengths
    ends = begins + lengths - 1
    spans = np.diff(edges, append=edges[-1] + 1)
    # ignore differences between the last value of a bucket and the first value of the next bucket
    spans[ends] = 1
    shortest, longest = np.minimum.reduceat(spans, begins), np.maximum.reduceat(spans, begins)
    rises = (edges[begins] == 0) & (edges[ends] == shape.capacity) & (shortest > 0)
    sequences = np.concatenate([numbers(batch.column("num_seqs"), np.int32) for batch in batches])
    counted = (sequences >= 0) & (sequences < lengths)
    tokens = np.concatenate([numbers(batch.column("num_tokens"), np.int32) for batch in batches])
    real = edges[begins + np.where(counted, sequences, 0)]
    rows = [numbers(batch.column("input_ids").values, np.uint8) for batch in batches]
    largest = np.concatenate([each.reshape(-1, shape.capacity).max(axis=1) for each in rows])
    return [
        (f"cu_seqlens does not rise from 0 to {shape.capacity}", ~rises),
        (f"a sequence is longer than {shape.max_seqlen} tokens", longest > shape.max_seqlen),
        (f"more than {shape.slots} sequences and pieces of padding", lengths - 1 > shape.slots),
        ("num_seqs is negative or larger than cu_seqlens allows", ~counted),
        ("num_tokens is negative or more than its sequences hold", (tokens < 0) | (tokens > real)),
        (f"a token id is not below {shape.vocabulary}", largest >= shape.vocabulary),
    ]


def _values(lists: pa.ListArray) -> NDArray[np.int32]:
    """Return the values of the lists. Unlike `flatten`, this does not import pyarrow.compute."""
    offsets = numbers(lists.offsets, np.int32)
    return numbers(lists.values, np.int32)[offsets[0] : offsets[-1]]
