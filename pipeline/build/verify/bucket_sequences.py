"""Extract the sequences from a record batch of buckets.

This module does not use the kernels that wrote the buckets. Therefore it also finds their errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.errors import DatasetError
from schemas.manifest import Manifest


@dataclass(frozen=True, slots=True)
class BucketSequences:
    """The N sequences of a record batch, without specials and padding.

    tokens:  uint8[T], residue tokens end to end
    ends:    int64[N], index after each sequence's last residue in `tokens`
    ordinal: int64[N], ordinal of each sequence's record
    start:   int64[N], index of each sequence's first residue in its record
    bucket:  int64[N], row of each sequence's bucket in the batch
    """

    tokens: NDArray[np.uint8]
    ends: NDArray[np.int64]
    ordinal: NDArray[np.int64]
    start: NDArray[np.int64]
    bucket: NDArray[np.int64]


def bucket_sequences(batch: pa.RecordBatch, manifest: Manifest) -> BucketSequences:
    """Return the sequences of a batch. The batch's buckets must obey the format's rules.

    Raises:
        DatasetError: columns of the batch contradict each other, because the shard has changed
            since it was verified.
    """
    vocabulary = manifest.vocabulary_object
    ids = batch.column("input_ids").values.to_numpy().reshape(batch.num_rows, manifest.capacity)
    cu_seqlens = batch.column("cu_seqlens").values.to_numpy()
    offsets = batch.column("cu_seqlens").offsets.to_numpy()
    parts, buckets = [], []
    for b, count in enumerate(batch.column("num_seqs").to_numpy().tolist()):
        edges = cu_seqlens[offsets[b] : offsets[b] + count + 1]
        spans = [ids[b, x:y] for x, y in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        parts += [span[1 : int(np.flatnonzero(span == vocabulary.eos)[-1])] for span in spans]
        buckets += [b] * count
    if len(parts) != len(batch.column("record").values):
        raise DatasetError("a shard changed while it was read; run the same command again")
    return BucketSequences(
        tokens=np.concatenate([*parts, np.empty(0, dtype=np.uint8)]),
        ends=np.cumsum([part.size for part in parts], dtype=np.int64),
        ordinal=batch.column("record").values.to_numpy(),
        start=batch.column("start").values.to_numpy().astype(np.int64),
        bucket=np.array(buckets, dtype=np.int64),
    )
