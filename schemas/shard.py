"""The shard schema, one row for each bucket, and sizes that follow from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION: Final = 1
BATCH_BUCKETS: Final = 64
"""Buckets in a record batch, which a reader maps at a time: about 1 MiB at 16,384 tokens per
bucket."""

SPLITS: Final = ("train", "valid")


def shard_schema(capacity: int) -> pa.Schema:
    """Return the Arrow schema of a shard whose buckets hold `capacity` tokens.

    docs/reference/format.md explains each column.
    """
    import pyarrow as pa  # here, so that reading a manifest needs no pyarrow

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


def round_up(tokens: int, multiple: int) -> int:
    """Return `tokens` rounded up to a multiple."""
    return -(-tokens // multiple) * multiple


class SequenceLimits:
    """Limits that follow from the options of a dataset."""

    __slots__ = ()

    if TYPE_CHECKING:  # fields of dataclasses, which would take these for their defaults

        @property
        def max_seq_len(self) -> int: ...

        @property
        def length_multiple(self) -> int: ...

    @property
    def longest_piece(self) -> int:
        """Most residues of a sequence: max_seq_len without <cls> and <eos>."""
        return self.max_seq_len - 2

    @property
    def longest_span(self) -> int:
        """Most tokens of a sequence with its length-multiple padding; also bounds tail pieces."""
        return round_up(self.max_seq_len, self.length_multiple)


def slots_for(most_pieces: int) -> int:
    """Return the smallest power of two from 32 that holds a bucket's sequences and tail pieces."""
    return max(32, 1 << max(0, most_pieces - 1).bit_length())
