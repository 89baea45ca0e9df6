"""Rests: sequences that did not fill a bucket, with their records, for a later task to pack.

`pipeline.build.spill.rest_files` describes their format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import (
    bytes_and_edges,
    gather_runs,
    number_array,
    one_chunk,
)
from pipeline.build.reduce_stage.deduplicate import KEPT
from pipeline.build.reduce_stage.record_rows import RecordRows
from pipeline.build.reduce_stage.sequences import Sequences
from pipeline.build.reduce_stage.spilled_records import hash_column, number_column
from pipeline.build.reduce_stage.whole_partition import Partition
from pipeline.build.spill.rest_files import read_rests, write_rest
from pipeline.build.task_results import WorkFile
from pipeline.storage.folder import Folder

REST_SCHEMA: Final = pa.schema(
    [
        ("split", pa.int8()),
        ("key", pa.uint64()),
        ("ordinal", pa.int64()),
        ("start", pa.int64()),
        ("first", pa.int8()),
        ("tokens", pa.large_binary()),
        # The columns below are for the record's row in records/. The task that packs the record's
        # first sequence writes this row.
        ("id", pa.large_binary()),
        ("stated", pa.large_binary()),
        ("source", pa.int32()),
        ("offset", pa.int64()),
        ("residues", pa.int64()),
        ("unknown", pa.int64()),
        ("hash", pa.binary(16)),
        ("cluster", pa.uint64()),
    ]
)


@dataclass(frozen=True, slots=True)
class LeftOver:
    """Sequences of one split that did not fill a bucket.

    split: index into SPLITS
    row:   int64[N], row of each sequence's record in its partition
    """

    split: int
    sequences: Sequences
    row: NDArray[np.int64]


def save_rest(
    work: Folder,
    name: str,
    left_over: Sequence[LeftOver],
    rows: Sequence[RecordRows],
    tokens: NDArray[np.uint8],
) -> WorkFile:
    """Write left-over sequences and their records as a rest.

    Args:
        rows: for each item of `left_over`, one row for the record of each sequence.
        tokens: uint8[T], residue tokens of the partition.
    Raises:
        BuildError: the file cannot be written.
    """
    tables = [_rest_table(*each, tokens) for each in zip(left_over, rows, strict=True)]
    return write_rest(work, name, pa.concat_tables(tables))


def load_rests(work: Folder, names: Sequence[str]) -> tuple[Partition, Sequences]:
    """Read rests. Return a partition with one row for each sequence, and the unshuffled sequences.

    Raises:
        DamagedSpillError: a rest is damaged.
    """
    table = read_rests(work, names, REST_SCHEMA)
    tokens, edges = bytes_and_edges(one_chunk(table.column("tokens")))
    sequences = Sequences(
        begin=edges[:-1],
        residues=np.diff(edges),
        ordinal=number_column(table, "ordinal", np.int64),
        start=number_column(table, "start", np.int64),
        first=number_column(table, "first", np.int8).astype(np.bool_),
        key=number_column(table, "key", np.uint64),
    )
    rows = RecordRows(
        ordinal=sequences.ordinal,
        id=one_chunk(table.column("id")),
        stated=one_chunk(table.column("stated")),
        source=number_column(table, "source", np.int32),
        offset=number_column(table, "offset", np.int64),
        residues=number_column(table, "residues", np.int64),
        unknown=number_column(table, "unknown", np.int64),
        hash=hash_column(table.column("hash")),
        status=np.full(table.num_rows, KEPT, dtype=np.int8),
        split=number_column(table, "split", np.int8),
        cluster=number_column(table, "cluster", np.uint64),
    )
    partition = Partition(
        rows=rows,
        tokens=tokens,
        begin=edges[:-1],
        counts=np.zeros(0, dtype=np.int64),
        residues=np.zeros(0, dtype=np.int64),
    )
    return partition, sequences


def _rest_table(part: LeftOver, rows: RecordRows, tokens: NDArray[np.uint8]) -> pa.Table:
    """Return the table of a rest. Row i of `rows` is the record of sequence i."""
    sequences = part.sequences
    begin, end = sequences.begin, sequences.begin + sequences.residues
    columns = [
        number_array(np.full(len(sequences), part.split, dtype=np.int8)),
        number_array(sequences.key),
        number_array(sequences.ordinal),
        number_array(sequences.start),
        number_array(sequences.first.astype(np.int8)),
        gather_runs(tokens, begin, end, pa.large_binary()),
        rows.id,
        rows.stated,
        number_array(rows.source),
        number_array(rows.offset),
        number_array(rows.residues),
        number_array(rows.unknown),
        pa.Array.from_buffers(pa.binary(16), len(sequences), [None, pa.py_buffer(rows.hash)]),
        number_array(rows.cluster),
    ]
    return pa.table(columns, schema=REST_SCHEMA)
