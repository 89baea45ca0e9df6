"""The shard schema, which has one row for each bucket, and sizes that are derived from options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION: Final = 1
BATCH_BUCKETS: Final = 64
"""Number of buckets in a record batch, which is about 1 MiB at 16,384 tokens per bucket. A reader
maps one record batch at a time."""

SPLITS: Final = ("train", "valid")


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


def round_up(tokens: int, multiple: int) -> int:
    """Return `tokens` rounded up to a multiple of `multiple`."""
    return -(-tokens // multiple) * multiple


class SequenceLimits:
    """Limits that are derived from the options of a dataset."""

    __slots__ = ()

    if TYPE_CHECKING:  # dataclasses define these fields; at run time, these would be their defaults

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

        No tail piece (a part of the padding at a bucket's end) is longer.
        """
        return round_up(self.max_seq_len, self.length_multiple)


def slots_for(most_pieces: int) -> int:
    """Return the smallest power of two, at least 32, that is not below `most_pieces`.

    `most_pieces` is the largest number of sequences and tail pieces in a bucket.
    """
    return max(32, 1 << max(0, most_pieces - 1).bit_length())
