"""The records/ schema: one row for every input record, with its status."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa


class Status(StrEnum):
    """Status of a record: kept, or the reason why the record was left out.

    If several reasons apply, the status is the first of them in this order.
    """

    KEPT = "kept"
    INVALID = "invalid"
    """A letter outside the vocabulary, under `--on-invalid skip`."""
    TOO_SHORT = "too_short"
    """Fewer residues than `--min-residues`."""
    TOO_LONG = "too_long"
    """More residues than fit into max_seq_len, under `--long drop`."""
    DUPLICATE = "duplicate"
    """The same tokens as an earlier record; under `--dedup cropped`, the same after truncation."""


STATUS_CODES: Final = tuple(Status)
"""Arrays of statuses, int8[N], hold indices into this tuple."""


def records_schema() -> pa.Schema:
    """Return the Arrow schema of a records/ file.

    `split`, `shard` and `bucket` are null for a record that was not kept.
    """
    import pyarrow as pa  # imported here, so that reading a manifest needs no pyarrow

    words = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            pa.field("ordinal", pa.int64(), nullable=False),
            pa.field("id", pa.string(), nullable=False),
            pa.field("source", words, nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("residues", pa.int64(), nullable=False),
            pa.field("unknown", pa.int64(), nullable=False),
            pa.field("hash", pa.binary(16), nullable=False),
            pa.field("split", words),
            pa.field("shard", words),
            pa.field("bucket", pa.int32()),
            pa.field("status", words, nullable=False),
            pa.field("duplicate_of", pa.int64()),
        ]
    )
