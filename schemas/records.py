"""The records/ schema: one row for every input record, with its status."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import pyarrow as pa


class Status(StrEnum):
    """Status of a record: kept, or the reason why the record was left out.

    If several reasons apply, the status is the first of them in this order.
    """

    KEPT = "kept"
    INVALID = "invalid"
    """The record has a letter outside the vocabulary (only with `--on-invalid skip`)."""
    TOO_SHORT = "too_short"
    """The record has fewer residues than `--min-residues`."""
    TOO_LONG = "too_long"
    """The record has more residues than fit into max_seq_len (only with `--long drop`)."""
    FILTERED = "filtered"
    """The expression of `--where` is not true for the record."""
    EXCLUDED = "excluded"
    """The record matches an entry of a file of `--exclude`, in one of the EXCLUSION_KINDS."""
    DUPLICATE = "duplicate"
    """An earlier record has the same tokens. `--dedup cropped` compares tokens after truncation."""


DATABASES: Final = (
    "Swiss-Prot",
    "TrEMBL",
    "UniRef50",
    "UniRef90",
    "UniRef100",
    "UniParc",
    "MGnify",
    "RefSeq",
    "GenBank",
    "EMBL",
    "DDBJ",
    "PDB",
    "PIR",
    "PRF",
)
"""Databases that a record's header may name. Arrays of databases, int8[N], hold indices into this
tuple."""

EXCLUSION_KINDS: Final = ("equal", "listed", "contains", "contained", "similar")
"""Ways in which a record can match an entry of a file of `--exclude`. If several apply, the first
in this order counts."""

STATUS_CODES: Final = tuple(Status)
"""Arrays of statuses, int8[N], hold indices into this tuple."""


HEADER: Final = "header"
"""Column of records/ with the full header (only with `--keep-header`)."""

ColumnType = Literal["bool", "int", "float", "string"]
"""Type of a column that `--metadata` adds to records/."""

MOST_METADATA_COLUMNS: Final = 1_000
"""Maximum number of columns that `--metadata` adds to records/."""
NO_COLUMNS: Final[Mapping[str, ColumnType]] = MappingProxyType({})
RETIRED: Final = "retired"
"""Folder of the lists of retired records, in a dataset's folder. `thdpack append --retire` writes
these lists."""


def arrow_type(kind: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column that `--metadata` adds."""
    import pyarrow as pa

    types = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "string": pa.string()}
    return types[kind]


def records_schema(
    *, keep_header: bool = False, metadata_columns: Mapping[str, ColumnType] = NO_COLUMNS
) -> pa.Schema:
    """Return the Arrow schema of a records/ file.

    `split`, `shard` and `bucket` are null for a record that was not kept. `shard` and `bucket` are
    also null for a record that variant 0 does not draw (--sample-clusters).

    Args:
        keep_header: True if the records have their full headers.
        metadata_columns: columns that `--metadata` adds, in any order.
    """
    import pyarrow as pa  # imported here, so that reading a manifest needs no pyarrow

    headers = [pa.field(HEADER, pa.string())] if keep_header else []
    metadata = [pa.field(name, arrow_type(kind)) for name, kind in sorted(metadata_columns.items())]
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
            pa.field("cluster", pa.uint64()),
            # The entry of a file of --exclude that the record matches; null for other records.
            pa.field("exclusion", words),
            pa.field("match", pa.string()),
            pa.field("match_file", words),
            # Values that the header states. Values that the header does not state are null, except
            # that `fragment` is false.
            pa.field("accession", pa.string()),
            pa.field("name", pa.string()),
            pa.field("taxid", pa.int32()),
            pa.field("organism", pa.string()),
            pa.field("gene", pa.string()),
            pa.field("pe", pa.int8()),
            pa.field("fragment", pa.bool_(), nullable=False),
            pa.field("cluster_size", pa.int32()),
            pa.field("database", words),
            *headers,
            *metadata,
        ]
    )


def retired_schema() -> pa.Schema:
    """Return the Arrow schema of a file of retired/. Its ordinals are ascending."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("ordinal", pa.int64(), nullable=False),
            pa.field("id", pa.string(), nullable=False),
        ]
    )
