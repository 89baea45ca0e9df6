"""The schema of a shard (one row per bucket), the `Bucket` that a reader returns, and limits of the
lengths of sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

FORMAT_VERSION: Final = 2
BATCH_BUCKETS: Final = 64
"""Number of buckets in a record batch. With 16,384 tokens per bucket, a record batch has about 1
MiB."""

Long = Literal["truncate", "crop", "split", "drop"]
"""Treatment of records longer than max_seq_len: keep the first residues, keep a random window, cut
the record into several sequences, or leave it out."""
CROPPING: Final = ("truncate", "crop")
"""Treatments that keep only a part of a long record."""

SPLITS: Final = ("train", "valid", "test")
"""Splits of every dataset. A split without records has no shards."""


def shard_schema(capacity: int) -> pa.Schema:
    """Return the Arrow schema of a shard whose buckets hold `capacity` tokens.

    docs/reference/format.md explains each column.
    """
    import pyarrow as pa  # imported here, so that reading a manifest needs no pyarrow

    return pa.schema(
        [
            pa.field(
                "input_ids",
                pa.list_(pa.field("item", pa.uint8(), nullable=False), capacity),
                nullable=False,
            ),
            pa.field(
                "cu_seqlens", pa.list_(pa.field("item", pa.int32(), nullable=False)), nullable=False
            ),
            pa.field("num_seqs", pa.int32(), nullable=False),
            pa.field("num_tokens", pa.int32(), nullable=False),
            pa.field("max_seqlen", pa.int32(), nullable=False),
            pa.field(
                "record", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False
            ),
            pa.field(
                "start", pa.list_(pa.field("item", pa.int32(), nullable=False)), nullable=False
            ),
        ]
    )


# not frozen: creating a frozen object would add 0.5 µs to the 3 µs that reading a bucket takes
@dataclass(kw_only=True, slots=True)
class Bucket:
    """One THD row (total tokens × heads × head dim): whole sequences in exactly `capacity` tokens.

    `sequences()` decodes the tokens: it returns the sequences as text. `merge` makes one row of
    k × capacity tokens out of k buckets.

    input_ids:  uint8[capacity], read-only; a view of the memory-mapped shard, or a copy if the
        shard is compressed
    cu_seqlens: int32[slots + 1], read-only: offsets of the sequences, then `capacity` repeated.
        Sequence i is input_ids[cu_seqlens[i]:cu_seqlens[i + 1]]
    max_seqlen: upper limit of the number of tokens in a sequence or tail piece (a part of the
        padding at the end); a Python int, the same for all buckets of a dataset
    num_seqs:   number of real sequences, which are first in cu_seqlens; tail pieces of <pad> follow
    num_tokens: number of real tokens, without the tail and the padding of --length-multiple
    position:   position in the global order, counted across epochs; -1 if the caller chose the
        bucket by its number
    epoch:      number of the epoch, from 0; in a mixture, the epoch of the bucket's dataset; -1 if
        the caller chose the bucket by its number
    """

    input_ids: NDArray[np.uint8]
    cu_seqlens: NDArray[np.int32]
    max_seqlen: int
    num_seqs: int
    num_tokens: int
    position: int
    epoch: int = -1

    def __repr__(self) -> str:
        # imported here, so that reading needs no texts
        from schemas.text.phrases import plural

        place = f", position {self.position:,}" if self.position >= 0 else ""
        place += f", epoch {self.epoch:,}" if self.epoch >= 0 else ""
        tokens = f"{self.num_tokens:,} of {len(self.input_ids):,} tokens"
        sequences = plural(self.num_seqs, "sequence")
        return f"Bucket({sequences}, {tokens}{place}; .sequences() decodes)"

    def sequences(self) -> list[str]:
        """Decode the tokens: return the residues of each sequence as text, with `?` for <unk>.

        `ShardReader.records` returns the records of these sequences.
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


def round_up(tokens: int, multiple: int) -> int:
    """Return `tokens` rounded up to a multiple of `multiple`."""
    return -(-tokens // multiple) * multiple


class SequenceLimits:
    """Limits of sequence lengths, derived from the options of a dataset."""

    __slots__ = ()

    if TYPE_CHECKING:  # at run time, dataclasses would take these properties as default values

        @property
        def max_seq_len(self) -> int: ...

        @property
        def length_multiple(self) -> int: ...

    @property
    def longest_piece(self) -> int:
        """Maximum number of residues in a sequence: max_seq_len without <cls> and <eos>."""
        return self.max_seq_len - 2

    @property
    def longest_span(self) -> int:
        """Maximum number of tokens in a sequence, length-multiple padding included.

        A tail piece (a part of the padding at a bucket's end) has at most this many tokens, too.
        """
        return round_up(self.max_seq_len, self.length_multiple)


def slots_for(most_pieces: int) -> int:
    """Return the smallest power of two that is at least 32 and at least `most_pieces`.

    `most_pieces` is the largest number of pieces (sequences and tail pieces together) in a bucket.
    """
    return max(32, 1 << max(0, most_pieces - 1).bit_length())
