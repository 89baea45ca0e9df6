"""A bucket, the unit that the reader returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# not frozen: to create a frozen object would take 0.5 µs more, and a bucket takes 3 µs in all
@dataclass(kw_only=True, slots=True)
class Bucket:
    """One THD row (total tokens × heads × head dim): whole sequences in exactly `capacity` tokens.

    `merge` makes one row of k × capacity tokens out of k buckets.

    input_ids:  uint8[capacity], read-only; a view of the shard's mapping unless it is compressed
    cu_seqlens: int32[slots + 1], read-only: offsets of the sequences, then `capacity` repeated.
        Sequence i is input_ids[cu_seqlens[i]:cu_seqlens[i + 1]]
    max_seqlen: upper limit of the tokens in a sequence or tail piece (a part of the padding at the
        end); a Python int, the same for all buckets of a dataset
    num_seqs:   number of real sequences, which are first in cu_seqlens; tail pieces of <pad> follow
    num_tokens: number of real tokens, without tail and length-multiple padding
    position:   position in the global order, counted across epochs; -1 if read by number
    """

    input_ids: NDArray[np.uint8]
    cu_seqlens: NDArray[np.int32]
    max_seqlen: int
    num_seqs: int
    num_tokens: int
    position: int

    def sequences(self) -> list[str]:
        """Return the residues of each sequence, with `?` for <unk>, for people to read.

        `ShardReader.records` tells which records they come from.
        """
        from schemas.vocabulary import ESM2  # imported here, so that reading needs no vocabulary

        letters = "".join(token if len(token) == 1 else "?" for token in ESM2.tokens)
        outside = (ESM2.cls, ESM2.eos, ESM2.pad)
        edges = self.cu_seqlens.tolist()
        pieces = (
            self.input_ids[begin:end].tolist() for begin, end in zip(edges, edges[1:], strict=False)
        )
        return [
            "".join(letters[token] for token in piece if token not in outside)
            for piece in pieces
            if piece and piece[0] != ESM2.pad
        ]
