"""A map task: read a range of an input, and write its tokenized records, sorted by partition.

Steps for each block of records:

1. Read and tokenize the block; compute content hashes of the input's bytes.
2. With `--on-invalid error`, end the build at the first letter outside the vocabulary.
3. Hash each record, and give it a status (kept, invalid, too short, too long, filtered).
4. Choose each record's partition by the hash of its first piece: its first max_seq_len - 2
   residues. Records that are equal after truncation are therefore in the same partition.
5. Write the records to the output file, sorted by partition, with tokens packed at 5 bits each.

The output file is called a spill. `pipeline.build.spill.spill_files` describes its format. The
reduce stage finds duplicates later.
"""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import gather_runs, number_array
from pipeline.build.arrays.sequence_hashes import first_piece_hashes, partitions_of, sequence_hashes
from pipeline.build.filters.where import where
from pipeline.build.map_stage.listed_ids import NotedIds
from pipeline.build.map_stage.missing_ids import columns_without_ids
from pipeline.build.map_stage.section_records import section_blocks
from pipeline.build.named_files.metadata.lookup import MetadataTable, metadata_table
from pipeline.build.options import DatasetOptions
from pipeline.build.spill.spill_files import SPILL_SCHEMA, SpillWriter, create_spill
from pipeline.build.spill.spill_kernel import pack
from pipeline.build.task_results import MapResult
from pipeline.build.tasks import MapTask, OnBytes
from pipeline.inputs.composition.block_tokens import refuse_other_tokens
from pipeline.inputs.error_location import first_unknown
from pipeline.inputs.formats.registry import FORMATS
from pipeline.inputs.headers import pack_headers
from pipeline.inputs.record_block import Blocks, RecordBlock
from pipeline.inputs.source import InputRange
from schemas.errors import InputError
from schemas.records import STATUS_CODES, Status
from schemas.vocabulary import ESM2

_KEPT, _INVALID, _TOO_SHORT, _TOO_LONG, _FILTERED = (
    STATUS_CODES.index(status)
    for status in (
        Status.KEPT,
        Status.INVALID,
        Status.TOO_SHORT,
        Status.TOO_LONG,
        Status.FILTERED,
    )
)


def partition_records(task: MapTask, on_bytes: OnBytes) -> MapResult:
    """Write a map task's spill; return its size and counts.

    Raises:
        InputError: the input cannot be read or breaks a rule.
        BuildError: the spill cannot be written.
    """
    records = residues = unknown = id_bytes = 0
    filtered = task.options.where is not None
    stated: set[str] = set()
    metadata = metadata_table(task.prepared, task.work) if filtered else None
    listed = NotedIds(task.prepared, task.work)
    pieces: list[str] = []
    with (
        closing(record_blocks(task, on_bytes)) as blocks,
        create_spill(task.work, task.spill, task.partitions) as spill,
    ):
        for block, hashed in blocks:
            pieces += hashed
            if len(block):
                first = not records and not task.begin
                # the first letters of FASTA were checked when the build was planned
                judged = task.source.format == "fasta"
                refuse_other_tokens(task.source, block, task.allowed, first=first, judged=judged)
                _refuse_unknown(task, block)
                batch = _write(spill, block, records, task, metadata, stated)
                listed.add(batch.column("id"), batch.column("stated"))
                records += len(block)
                residues += int(block.ends[-1])
                unknown += int(block.unknown.sum())
                id_bytes += int(block.id_ends[-1])
    assert spill.written is not None
    return MapResult(
        spill=spill.written,
        records=records,
        residues=residues,
        unknown=unknown,
        pieces=tuple(pieces),
        columns_without_ids=() if id_bytes else columns_without_ids(task),
        listed=listed.indices,
        stated=tuple(sorted(stated)),
    )


def record_blocks(task: MapTask, on_bytes: OnBytes) -> Blocks:
    """Yield a map task's records in blocks, for any input format, with content hashes of the input.

    The hashes come with the last block. These hashes are the xxh3_128 of each piece (`Source.piece`
    bytes) of the range. Parquet and Arrow files, and sections of archives, come without hashes,
    because hash tasks compute them.

    Raises:
        InputError: the input cannot be read or breaks a rule.
    """
    if task.section is not None:
        return section_blocks(task, ESM2)
    part = InputRange(
        source=task.source,
        begin=task.begin,
        end=task.end,
        sequence_column=task.options.sequence_column,
        id_column=task.options.id_column,
    )
    return FORMATS[task.source.format].read(part, ESM2, on_bytes)


def _refuse_unknown(task: MapTask, block: RecordBlock) -> None:
    """With `--on-invalid error`, end the build at the first letter outside the vocabulary.

    Raises:
        InputError: the block has such a letter. The error names the line in a FASTA file, or the
            record in a file of another format.
    """
    if task.options.on_invalid != "error" or not block.unknown.any():
        return
    first = int(np.flatnonzero(block.unknown)[0])
    offset = int(block.offset[first])
    if task.source.format == "fasta":
        letter, line = first_unknown(task.source, offset)
        raise InputError(
            f"letter {letter!r} is outside the vocabulary; --on-invalid unk reads it as <unk>",
            source=task.source.url,
            line=line,
        )
    raise InputError(
        f"record {offset} ({block.id(first)}) has a letter outside the vocabulary; "
        "--on-invalid unk reads it as <unk>",
        source=task.source.url,
    )


def _write(
    spill: SpillWriter,
    block: RecordBlock,
    first: int,
    task: MapTask,
    metadata: MetadataTable | None,
    stated: set[str],
) -> pa.RecordBatch:
    """Write a block's records to the spill: one record batch for each partition. Return the records
    in the order of partitions.

    Args:
        first: index of the block's first record within the task.
        metadata: table of --metadata.
        stated: set; the columns of --where for which a record has a value are added to it.
    """
    hashes = sequence_hashes(block.tokens, block.ends)
    status = status_of(block, task.options, metadata, stated)
    # use the first piece, so that records that are equal after truncation share a partition
    partition = partitions_of(
        first_piece_hashes(block.tokens, block.ends, hashes, task.options.longest_piece),
        task.partitions,
    )
    order = np.argsort(
        partition.astype(np.uint16) if task.partitions <= 1 << 16 else partition, kind="stable"
    )
    batch = pa.RecordBatch.from_arrays(
        [
            number_array(first + order),
            _gathered(block.ids, block.id_ends, order),
            _stated(block, order, task.options),
            number_array(block.offset[order]),
            number_array(block.unknown[order]),
            pa.Array.from_buffers(pa.binary(16), len(block), [None, pa.py_buffer(hashes[order])]),
            number_array(status[order]),
            number_array(np.diff(block.ends, prepend=0)[order]),
            _packed(block, order),
        ],
        schema=SPILL_SCHEMA,
    )
    edges = np.searchsorted(partition[order], np.arange(task.partitions + 1)).tolist()
    spill.write(
        [
            batch.slice(start, stop - start)
            for start, stop in zip(edges[:-1], edges[1:], strict=True)
        ]
    )
    return batch


def status_of(
    block: RecordBlock,
    options: DatasetOptions,
    metadata: MetadataTable | None = None,
    stated: set[str] | None = None,
) -> NDArray[np.int8]:
    """Return each record's status, int8[N], an index into STATUS_CODES.

    No record has the status `duplicate` yet.

    Args:
        metadata: table of --metadata.
        stated: set; the columns of --where for which a record has a value are added to it.
    """
    residues = np.diff(block.ends, prepend=0)
    status = np.full(len(block), _KEPT, dtype=np.int8)
    if options.where is not None:
        columns = () if metadata is None else tuple(metadata.columns.items())
        status[~where(options.where, columns).keep(block, metadata, stated)] = _FILTERED
    if options.long == "drop":
        status[residues > options.longest_piece] = _TOO_LONG
    status[residues < options.min_residues] = _TOO_SHORT
    if options.on_invalid == "skip":
        status[block.unknown > 0] = _INVALID
    return status


def _gathered(
    values: NDArray[np.uint8], ends: NDArray[np.int64], order: NDArray[np.int64]
) -> pa.Array:
    """Return the texts at the indices `order`, int64[N], as a large_binary array."""
    return gather_runs(values, _begins(ends)[order], ends[order], pa.large_binary())


def _stated(block: RecordBlock, order: NDArray[np.int64], options: DatasetOptions) -> pa.Array:
    """Return the packed values that headers state, at the indices `order`, int64[N]."""
    packed, edges = pack_headers(
        block.ids,
        block.id_edges,
        block.descriptions,
        block.description_edges,
        order,
        keep_descriptions=options.keep_header,
    )
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(packed)]
    return pa.Array.from_buffers(pa.large_binary(), order.size, buffers)


def _packed(block: RecordBlock, order: NDArray[np.int64]) -> pa.Array:
    """Return each record's tokens, packed at 5 bits, as a large_binary array. The records are in
    the order `order`, int64[N]."""
    assert ESM2.in_sequence[-1] < 32  # a token fits into 5 bits
    begin, end = _begins(block.ends)[order], block.ends[order]
    offsets = np.concatenate(([0], np.cumsum((5 * (end - begin) + 7) // 8)))
    out = np.empty(int(offsets[-1]) + 3, dtype=np.uint8)
    pack(block.tokens, begin, end, out)
    out[offsets[-1] :] = 0  # the kernel leaves arbitrary bytes at the end
    return pa.Array.from_buffers(
        pa.large_binary(), order.size, [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    )


def _begins(ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index where each record begins, int64[N]: the end of the previous record."""
    return np.concatenate(([0], ends[:-1]))
