"""The reduce stage: records in, shards and a row in records/ for each out.

One partition at a time, duplicates go, order is shuffled, sequences are packed. What fills no bucket is left in a rest file;
the rests of many partitions are packed together, at last everything that is still left, so that each split ends with at
most one part-filled bucket.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges, gather_runs, number_array, one_chunk
from pipeline.build.map_stage.map_results import load_map_outcome
from pipeline.build.reduce_stage.deduplicate import KEPT, shuffle_order, shuffled_sequences
from pipeline.build.reduce_stage.large_partition import LargePartition
from pipeline.build.reduce_stage.spilled_records import SpilledRecords, hash_column, number_column
from pipeline.build.reduce_stage.whole_partition import Partition, whole_partition
from pipeline.build.reduce_stage.write_records import RecordRows, write_records
from pipeline.build.reduce_stage.write_shards import Sequences, WrittenSplit, write_split
from pipeline.build.spill.spill_files import read_rests, write_rest
from pipeline.build.task_results import PackResult, ReduceResult
from pipeline.build.tasks import OnBytes, ReduceTask, RestTask
from pipeline.storage.atomic_write import Finisher
from schemas.records import STATUS_CODES
from schemas.shard import SPLITS

REST_SCHEMA: Final = pa.schema(
    [
        ("split", pa.int8()),
        ("key", pa.uint64()),
        ("ordinal", pa.int64()),
        ("start", pa.int64()),
        ("tokens", pa.large_binary()),
        # the record's row; written to records/ with its first sequence
        ("id", pa.large_binary()),
        ("source", pa.int32()),
        ("offset", pa.int64()),
        ("residues", pa.int64()),
        ("unknown", pa.int64()),
        ("hash", pa.binary(16)),
    ]
)


def reduce_partition(task: ReduceTask, on_bytes: OnBytes) -> ReduceResult:
    """Write shards, records and rest of one partition; return what the manifest needs.

    Raises:
        BuildError: a file cannot be written. DamagedSpillError: a spill is not what was written.
    """
    options = task.job.options
    spilled = SpilledRecords(task)
    partition = (
        LargePartition(spilled, options, on_bytes)
        if spilled.large
        else whole_partition(next(spilled.runs()), options, on_bytes)
    )
    rows = partition.rows
    sequences, row = shuffled_sequences(
        rows.residues, rows.status, rows.hash, rows.ordinal, partition.begin, options
    )
    packed = _pack_and_write(task, partition, sequences, row, rest=task.rest)
    return ReduceResult(
        rest=packed.rest,
        records=packed.records,
        shards=packed.shards,
        statistics=packed.statistics,
        token_counts=packed.token_counts,
        status=dict(zip(STATUS_CODES, partition.counts.tolist(), strict=True)),
        residues_in=partition.residues_in,
        cropped_copies=partition.cropped_copies,
    )


def pack_rests(task: RestTask, on_bytes: OnBytes) -> PackResult:
    """Write the shards and records of rests; return what the manifest needs.

    Raises:
        BuildError: a file cannot be written. DamagedSpillError: a rest is not what was written.
    """
    table = read_rests(task.work, task.rests, REST_SCHEMA)
    tokens, edges = bytes_and_edges(one_chunk(table.column("tokens")))
    on_bytes(tokens.size)
    key, ordinal, start = (
        number_column(table, "key", np.uint64),
        number_column(table, "ordinal", np.int64),
        number_column(table, "start", np.int64),
    )
    sequences = Sequences(
        begin=edges[:-1], residues=np.diff(edges), ordinal=ordinal, start=start, key=key
    )
    order = shuffle_order(sequences)
    rows = RecordRows(
        ordinal=ordinal,
        id=one_chunk(table.column("id")),
        source=number_column(table, "source", np.int32),
        offset=number_column(table, "offset", np.int64),
        residues=number_column(table, "residues", np.int64),
        unknown=number_column(table, "unknown", np.int64),
        hash=hash_column(table.column("hash")),
        status=np.full(table.num_rows, KEPT, dtype=np.int8),
        split=number_column(table, "split", np.int8),
    )
    partition = Partition(
        rows=rows,
        tokens=tokens,
        begin=edges[:-1],
        counts=np.zeros(0, dtype=np.int64),
        residues_in=0,
    )
    return _pack_and_write(
        task, partition, sequences.take(order), order, rest=None if task.final else task.rest
    )


def _pack_and_write(
    task: ReduceTask | RestTask,
    partition: Partition,
    sequences: Sequences,
    row: NDArray[np.int64],
    *,
    rest: str | None,
) -> PackResult:
    """Pack sequences, write shards, rest and records; a record is written where its first sequence is.

    Args:
        partition: whose rows are records; of a RestTask one for each sequence, and only those of first sequences count.
        sequences: in shuffled order.
        row: int64[N], the row of each sequence.
        rest: where sequences that fill no bucket go; None to write part-filled buckets instead.
    """
    job, stem = task.job, task.stem
    rows, tokens = partition.rows, partition.tokens
    to_write = np.ones(len(rows), dtype=np.bool_)
    to_write[row[sequences.start > 0]] = False
    to_write[row[sequences.start == 0]] = True
    left_over: list[tuple[int, Sequences, NDArray[np.int64]]] = []
    written: dict[str, WrittenSplit] = {}
    with Finisher() as finisher:
        for code, split in enumerate(SPLITS):
            chosen = np.flatnonzero(rows.split[row] == code)
            part = sequences.take(chosen)
            result = write_split(
                tokens,
                part,
                job.options,
                split=split,
                stem=stem,
                final=rest is None,
                out=job.out,
                finisher=finisher,
            )
            rows.place(row[chosen], part.start, result)
            to_write[row[chosen][result.left_over & (part.start == 0)]] = False
            left_over.append((code, part.take(result.left_over), row[chosen][result.left_over]))
            written[split] = result
        blocks = partition.rows_to_write(
            to_write, np.concatenate([left for _, _, left in left_over])
        )
        records = write_records(
            blocks,
            f"records/{stem}.parquet",
            names=load_map_outcome(job.work, job.mapped).names,
            out=job.out,
            finisher=finisher,
        )
        tables = (
            []
            if rest is None
            else [
                _rest_table(code, part, partition.take(left), tokens)
                for code, part, left in left_over
            ]
        )
        rest_file = None if rest is None else write_rest(job.work, rest, pa.concat_tables(tables))
    return PackResult(
        rest=rest_file,
        records=records,
        shards={split: tuple(result.entries) for split, result in written.items()},
        statistics={split: result.statistics for split, result in written.items()},
        token_counts=tuple(
            np.sum([result.token_counts for result in written.values()], axis=0).tolist()
        ),
    )


def _rest_table(
    code: int, left: Sequences, rows: RecordRows, tokens: NDArray[np.uint8]
) -> pa.Table:
    """Sequences that filled no bucket, with what is needed to pack and record them later; `rows` is the record of each."""
    columns = [
        number_array(np.full(len(left), code, dtype=np.int8)),
        number_array(left.key),
        number_array(left.ordinal),
        number_array(left.start),
        gather_runs(tokens, left.begin, left.begin + left.residues, pa.large_binary()),
        rows.id,
        number_array(rows.source),
        number_array(rows.offset),
        number_array(rows.residues),
        number_array(rows.unknown),
        pa.Array.from_buffers(pa.binary(16), len(left), [None, pa.py_buffer(rows.hash)]),
    ]
    return pa.table(columns, schema=REST_SCHEMA)
