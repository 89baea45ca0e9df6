"""A bucket as the reader delivers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# not frozen: that would cost 0.5 of the 3 µs that a bucket takes
@dataclass(kw_only=True, slots=True)
class Bucket:
    """One THD row (total tokens × heads × head dim): whole sequences in exactly `capacity` tokens.

    `merge` makes one row of k × capacity tokens out of k buckets.

    input_ids:  uint8[capacity], read-only; a view of the shard's mapping unless it is compressed
    cu_seqlens: int32[slots + 1], read-only: offsets of the sequences, then `capacity` repeated.
        Sequence i is input_ids[cu_seqlens[i]:cu_seqlens[i + 1]]
    max_seqlen: no sequence and no tail piece is longer; a Python int, the same for all buckets of a
        dataset
    num_seqs:   real sequences, the first of cu_seqlens; the rest is a tail of <pad>
    num_tokens: real tokens, without tail and length-multiple padding
    position:   position in the global order, counted across epochs; -1 if read by number
    """

    input_ids: NDArray[np.uint8]
    cu_seqlens: NDArray[np.int32]
    max_seqlen: int
    num_seqs: int
    num_tokens: int
    position: int
