"""The reduce stage: records in, shards and a row in records/ for each out.

One partition at a time, duplicates go, order is shuffled, sequences are packed. What fills no bucket is left in a rest file;
the rests of many partitions are packed together, at last everything that is still left, so that each split ends with at
most one part-filled bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.arrays import gathered, numeric, one_chunk, runs, taken
from pipeline.columns import numbers
from pipeline.hashing import HASH, in_valid, sequence_hashes, shuffle_keys
from pipeline.mapped_stage import load_mapped
from pipeline.options import PreprocessOptions
from pipeline.partition import STATUS_CODES
from pipeline.records import RecordRows, write_records
from pipeline.shards import Sequences, WrittenSplit, write_split
from pipeline.spill import SPILL_SCHEMA, read_rests, spilled_partition, write_rest
from pipeline.spill_kernel import unpack
from pipeline.tasks import Job, OnBytes, ReduceTask, RestTask
from pipeline.writing import Finisher
from schemas.errors import DamagedSpillError
from schemas.records import Status
from schemas.shard import SPLITS

_KEPT: Final = STATUS_CODES.index(Status.KEPT)
_DUPLICATE: Final = STATUS_CODES.index(Status.DUPLICATE)

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


def reduce_partition(task: ReduceTask, on_bytes: OnBytes) -> dict[str, Any]:
    """Write shards, records and rest of one partition; return what the manifest needs.

    Raises:
        BuildError: a file cannot be written.
    """
    rows, tokens, begin = _read_spills(task)
    on_bytes(tokens.size)
    options = task.job.options
    rows.status, rows.duplicate_of = without_duplicates(rows.status, rows.hash, rows.ordinal, exact=options.dedup == "exact")
    sequences, row = sequences_of(rows.residues, rows.status, rows.hash, rows.ordinal, begin, options)
    valid = in_valid(rows.hash, options.valid_fraction)
    rows.split = np.where(rows.status == _KEPT, valid.astype(np.int8), -1).astype(np.int8)
    counts = np.bincount(rows.status, minlength=len(STATUS_CODES))
    return {
        "status": dict(zip(STATUS_CODES, counts.tolist(), strict=True)),
        "residues_in": int(rows.residues.sum()),
        **_pack_and_write(task.job, f"{task.partition:05d}", rows, sequences, row, tokens, rest=task.rest),
    }


def _read_spills(task: ReduceTask) -> tuple[RecordRows, NDArray[np.uint8], NDArray[np.int64]]:
    """The partition's records in input order, their residue tokens end to end, and where each record's begin.

    Raises:
        DamagedSpillError: a spill is not what was written.
    """
    batches: list[pa.RecordBatch] = []
    ordinals, sources, names = [], [], []
    spills = load_mapped(task.work, task.job.mapped).spills
    found = spilled_partition(task.work, [spill.name for spill in spills], task.partition, task.partitions)
    for spill, batch in found.batches():
        batches.append(batch)
        names.append(spills[spill].name)
        ordinals.append(numbers(batch.column("number"), np.int64) + spills[spill].first_ordinal)
        sources.append(np.full(batch.num_rows, spills[spill].source, dtype=np.int32))
    table = pa.Table.from_batches(batches, schema=SPILL_SCHEMA)
    rows = RecordRows(
        ordinal=np.concatenate([np.empty(0, dtype=np.int64), *ordinals]),
        id=one_chunk(table.column("id")),
        source=np.concatenate([np.empty(0, dtype=np.int32), *sources]),
        offset=_column(table, "offset", np.int64),
        residues=_column(table, "residues", np.int64),
        unknown=_column(table, "unknown", np.int64),
        hash=hashes_of(table.column("hash")),
        status=_column(table, "status", np.int8),
    )
    return rows, *_tokens_of(batches, rows, names)


def _tokens_of(batches: Sequence[pa.RecordBatch], rows: RecordRows, names: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The residue tokens of all records end to end, and where each record's begin; each has the hash that it had in the input.

    Args:
        batches: of the spills called `names`, as they make up `rows`.
    Raises:
        DamagedSpillError: sizes or a hash are not those of the tokens.
    """
    edges = np.concatenate(([0], np.cumsum(rows.residues)))
    first = 0
    packed = []
    for batch, name in zip(batches, names, strict=True):
        values, bounds = runs(batch.column("packed"))
        sizes = rows.residues[first : first + batch.num_rows]
        if (sizes < 0).any() or not np.array_equal(np.diff(bounds), (5 * sizes + 7) // 8):
            raise DamagedSpillError(name)
        packed.append((values, sizes, edges[first]))
        first += batch.num_rows
    tokens = np.empty(int(edges[-1]), dtype=np.uint8)
    for values, sizes, begin in packed:
        unpack(values, sizes, tokens[begin:])
    if not np.array_equal(sequence_hashes(tokens, edges[1:]).view(np.uint64), rows.hash.view(np.uint64)):
        wrong = int(np.flatnonzero(sequence_hashes(tokens, edges[1:]) != rows.hash)[0])
        raise DamagedSpillError(names[int(np.searchsorted(np.cumsum([batch.num_rows for batch in batches]), wrong, side="right"))])
    return tokens, edges[:-1]


def _column(table: pa.Table, name: str, dtype: type[np.generic]) -> NDArray[Any]:
    """A column of numbers."""
    return numbers(one_chunk(table.column(name)), dtype)


def pack_rests(task: RestTask, on_bytes: OnBytes) -> dict[str, Any]:
    """Write the shards and records of rests; return what the manifest needs.

    Raises:
        BuildError: a file cannot be written.
    """
    table = read_rests(task.work, task.rests, REST_SCHEMA)
    tokens, edges = runs(one_chunk(table.column("tokens")))
    on_bytes(tokens.size)
    key, ordinal, start = _column(table, "key", np.uint64), _column(table, "ordinal", np.int64), _column(table, "start", np.int64)
    sequences = Sequences(begin=edges[:-1], residues=np.diff(edges), ordinal=ordinal, start=start, key=key)
    order = order_of_rests(sequences)
    rows = RecordRows(
        ordinal=ordinal,
        id=one_chunk(table.column("id")),
        source=_column(table, "source", np.int32),
        offset=_column(table, "offset", np.int64),
        residues=_column(table, "residues", np.int64),
        unknown=_column(table, "unknown", np.int64),
        hash=hashes_of(table.column("hash")),
        status=np.full(table.num_rows, _KEPT, dtype=np.int8),
        split=_column(table, "split", np.int8),
    )
    label = "rest" if task.final else f"rest{task.level}x{task.index:05d}"
    return _pack_and_write(task.job, label, rows, sequences.take(order), order, tokens, rest=None if task.final else task.rest)


def order_of_rests(sequences: Sequences) -> NDArray[np.int64]:
    """What puts the rests of many partitions into shuffled order, int64[N]."""
    return np.lexsort((sequences.start, sequences.ordinal, sequences.key))


def _pack_and_write(
    job: Job, label: str, rows: RecordRows, sequences: Sequences, row: NDArray[np.int64], tokens: NDArray[np.uint8], *, rest: str | None
) -> dict[str, Any]:
    """Pack sequences, write shards, rest and records; a record is written where its first sequence is.

    Args:
        rows: the records; of a RestTask one for each sequence, and only those of first sequences count.
        sequences: in shuffled order.
        row: int64[N], the row of each sequence.
        rest: where sequences that fill no bucket go; None to write part-filled buckets instead.
    """
    stem = f"{job.build}-{label}"
    mentioned = np.ones(len(rows), dtype=np.bool_)
    mentioned[row[sequences.start > 0]] = False
    mentioned[row[sequences.start == 0]] = True
    left_over: list[pa.Table] = []
    written: dict[str, WrittenSplit] = {}
    with Finisher() as finisher:
        for code, split in enumerate(SPLITS):
            chosen = np.flatnonzero(rows.split[row] == code)
            part = sequences.take(chosen)
            result = write_split(tokens, part, job.options, split=split, stem=stem, final=rest is None, out=job.out, finisher=finisher)
            rows.place(row[chosen], part.start, result)
            mentioned[row[chosen][result.left & (part.start == 0)]] = False
            left_over.append(_rest_table(code, part.take(result.left), row[chosen][result.left], rows, tokens))
            written[split] = result
        spills = [] if rest is None else [write_rest(job.work, rest, pa.concat_tables(left_over))]
        named = rows.take(np.flatnonzero(mentioned)).in_order()
        records = write_records(named, f"records/{stem}.parquet", names=load_mapped(job.work, job.mapped).names, out=job.out, finisher=finisher)
    return {
        "spills": spills,
        "records": records,
        "shards": {split: [_entry(e) for e in result.entries] for split, result in written.items()},
        "statistics": {split: result.statistics.to_json() for split, result in written.items()},
        "token_counts": np.sum([result.token_counts for result in written.values()], axis=0).tolist(),
    }


def _entry(entry: Any) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__dataclass_fields__}


def _rest_table(code: int, left: Sequences, row: NDArray[np.int64], rows: RecordRows, tokens: NDArray[np.uint8]) -> pa.Table:
    """Sequences that filled no bucket, with what is needed to pack and record them later."""
    columns = [
        numeric(np.full(len(left), code, dtype=np.int8)),
        numeric(left.key),
        numeric(left.ordinal),
        numeric(left.start),
        gathered(tokens, left.begin, left.begin + left.residues, pa.large_binary()),
        taken(rows.id, row),
        numeric(rows.source[row]),
        numeric(rows.offset[row]),
        numeric(rows.residues[row]),
        numeric(rows.unknown[row]),
        pa.Array.from_buffers(pa.binary(16), len(left), [None, pa.py_buffer(rows.hash[row])]),
    ]
    return pa.table(columns, schema=REST_SCHEMA)


def hashes_of(column: pa.ChunkedArray) -> NDArray[np.void]:
    """A binary[16] column as HASH[N]."""
    array = one_chunk(column)
    if len(array) == 0:
        return np.empty(0, dtype=HASH)
    return np.frombuffer(array.buffers()[1], dtype=HASH)[array.offset : array.offset + len(array)]


def without_duplicates(
    status: NDArray[np.int8], hashes: NDArray[np.void], ordinals: NDArray[np.int64], *, exact: bool
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Status of each record, and for duplicates the ordinal of the record that stays (else -1).

    Args:
        status: int8[N], index into STATUS_CODES, before duplicates are looked for; hashes: HASH[N]; ordinals: int64[N], rising.
    """
    status = status.copy()
    duplicate_of = np.full(status.size, -1, dtype=np.int64)
    if not exact:
        return status, duplicate_of
    kept = np.flatnonzero(status == _KEPT)
    high, low = hashes["high"][kept].astype(np.uint64), hashes["low"][kept].astype(np.uint64)
    order = np.argsort(high)
    equal = high[order][1:] == high[order][:-1]
    if not equal.any():
        return status, duplicate_of
    in_run = np.concatenate((equal, [False])) | np.concatenate(([False], equal))
    order = order[in_run]
    order = order[np.lexsort((order, low[order], high[order]))]
    same = np.concatenate(([False], (high[order][1:] == high[order][:-1]) & (low[order][1:] == low[order][:-1])))
    first = order[np.maximum.accumulate(np.where(same, 0, np.arange(order.size)))]
    status[kept[order[same]]] = _DUPLICATE
    duplicate_of[kept[order[same]]] = ordinals[kept[first[same]]]
    return status, duplicate_of


def sequences_of(
    residues: NDArray[np.int64],
    status: NDArray[np.int8],
    hashes: NDArray[np.void],
    ordinals: NDArray[np.int64],
    begin: NDArray[np.int64],
    options: PreprocessOptions,
) -> tuple[Sequences, NDArray[np.int64]]:
    """The kept records of a partition as sequences in shuffled order, long ones cropped or cut, and the row of each.

    Args:
        residues, status, hashes, ordinals: of each record, in input order.
        begin: int64[N], where its residues start in the token array.
    """
    kept = np.flatnonzero(status == _KEPT)
    most = options.max_seq_len - 2
    pieces = -(-residues[kept] // most) if options.long == "split" else np.ones(kept.size, dtype=np.int64)
    row = np.repeat(kept, pieces)
    piece = np.arange(row.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = piece * most
    key = shuffle_keys(hashes[row], ordinals[row], piece, options.seed)
    order = np.argsort(key)  # four times as fast as a stable sort
    if (key[order][1:] == key[order][:-1]).any():
        order = np.argsort(key, kind="stable")  # equal keys stay in the order of ordinal and piece
    sequences = Sequences(
        begin=begin[row] + start,
        residues=np.minimum(residues[row] - start, most),
        ordinal=ordinals[row],
        start=start,
        key=key,
    )
    return sequences.take(order), row[order]
