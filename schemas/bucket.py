"""A bucket as the reader delivers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(
    kw_only=True, slots=True
)  # not frozen: that would cost 0.5 of the 3 µs that a bucket takes
class Bucket:
    """One THD row: whole sequences in exactly `capacity` tokens (in k × capacity, when `merge` made it of k buckets).

    input_ids:  uint8[capacity], read-only; a view of the shard's mapping where the shard is not compressed
    cu_seqlens: int32[slots + 1]; sequence i is input_ids[cu_seqlens[i]:cu_seqlens[i + 1]], then `capacity` repeated; read-only
    max_seqlen: no sequence and no tail piece here is longer; a Python int, the same for every bucket of a dataset
    num_seqs:   real sequences: the first num_seqs of cu_seqlens; what follows is a tail of <pad>
    num_tokens: real tokens, without tail and length-multiple padding
    position:   place in the global order, counted across epochs; -1 for a bucket asked for by number
    """

    input_ids: NDArray[np.uint8]
    cu_seqlens: NDArray[np.int32]
    max_seqlen: int
    num_seqs: int
    num_tokens: int
    position: int
