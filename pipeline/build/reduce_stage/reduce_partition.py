"""The reduce stage: write a partition's shards, and a row of records/ for each of its records.

1. Read the partition from the spills, the files that map tasks wrote. A partition that does not fit
   into memory is read in parts (`large_partition`).
2. Give each excluded record and each duplicate its status, and each kept record its split
   (`read_partition`, `exclude_records`, `deduplicate`, `whole_partition`).
3. Crop or split long records into sequences, and shuffle the sequences (`sequences`).
4. Pack the sequences of each split into buckets, and write the buckets as shards (`write_shards`).
5. Write each record's row to records/, with the shard and bucket of its first sequence
   (`write_records`).
6. Save the sequences that did not fill a bucket, with their records, as a rest (`rests`).

With --variants, steps 3, 4 and 6 are repeated for each variant, with another seed. Step 5 belongs
to variant 0. With --sample-clusters, each variant has only one kept record of each cluster
(`clusters.drawn_records`).

Rest tasks then repeat steps 4 to 6 for the rests of many partitions together. The last rest task of
a variant packs all sequences that remain. A build with one partition has no rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import variant_seed
from pipeline.build.clusters.drawn_records import DrawnRecords
from pipeline.build.clusters.newly_shown import NewlyShown, newly_shown
from pipeline.build.exclusion.exclusion_index import ExclusionIndex
from pipeline.build.map_stage.map_results import load_map_outcome
from pipeline.build.named_files.metadata.lookup import metadata_table
from pipeline.build.options import DatasetOptions
from pipeline.build.reduce_stage.deduplicate import KEPT
from pipeline.build.reduce_stage.exclude_records import exclusion_counts
from pipeline.build.reduce_stage.read_partition import read_partition
from pipeline.build.reduce_stage.rests import LeftOver, load_rests, save_rest
from pipeline.build.reduce_stage.sequences import Sequences, shuffle_order, shuffled_sequences
from pipeline.build.reduce_stage.whole_partition import Partition
from pipeline.build.reduce_stage.write_records import AddedColumns, write_records
from pipeline.build.reduce_stage.write_shards import WrittenSplit, write_split
from pipeline.build.task_results import PackedVariant, PackResult, ReduceResult
from pipeline.build.tasks import OnBytes, ReduceTask, RestTask
from pipeline.storage.atomic_write import Finisher
from schemas.manifest_entries import RecordsEntry
from schemas.records import STATUS_CODES
from schemas.shard import CROPPING, SPLITS


@dataclass(frozen=True, slots=True)
class VariantSequences:
    """The sequences of a variant.

    number: number of the variant
    sequences: N sequences, in shuffled order
    row: int64[N], index of each sequence's row in the partition
    """

    number: int
    sequences: Sequences
    row: NDArray[np.int64]


def reduce_partition(task: ReduceTask, on_bytes: OnBytes) -> ReduceResult:
    """Write one partition's shards, records and rest; return the result for the manifest.

    Raises:
        BuildError: a file cannot be written.
        DamagedSpillError: a spill is damaged.
    """
    found = read_partition(task, on_bytes)
    partition = found.partition
    drawn = DrawnRecords(task, partition.rows.status, partition.rows.ordinal)
    packed = _pack_and_write(task, partition, _every_variant(task, partition, drawn), found.index)
    by_kind, by_file = exclusion_counts(found.exclusion)
    new = _newly_shown(task, partition, drawn)
    not_drawn = drawn.not_drawn()
    return ReduceResult(
        packed=tuple(
            replace(
                each,
                new_members=new[each.variant].members,
                new_residues=new[each.variant].residues,
            )
            for each in packed.packed
        ),
        records=packed.records,
        metadata_records=packed.metadata_records,
        status=dict(zip(STATUS_CODES, partition.counts.tolist(), strict=True)),
        residues_in=int(partition.residues.sum()),
        residues=dict(zip(STATUS_CODES, partition.residues.tolist(), strict=True)),
        cropped_records=_cropped_records(partition, drawn.status_in(0), task.job.options),
        clusters=drawn.clusters,
        members=drawn.row.size,
        not_drawn=not_drawn.size,
        residues_not_drawn=int(partition.rows.residues[not_drawn].sum()),
        cropped_copies=partition.cropped_copies,
        excluded_by_kind=by_kind,
        excluded_by_file=by_file,
    )


def _every_variant(
    task: ReduceTask, partition: Partition, drawn: DrawnRecords
) -> Iterator[VariantSequences]:
    """Yield the shuffled sequences of each variant."""
    rows, options = partition.rows, task.job.options
    for variant in task.job.variants:
        seed, status = variant_seed(options.seed, variant), drawn.status_in(variant)
        sequences, row = shuffled_sequences(
            rows.residues, status, rows.hash, rows.ordinal, partition.begin, options, seed
        )
        yield VariantSequences(variant, sequences, row)


def _newly_shown(task: ReduceTask, partition: Partition, drawn: DrawnRecords) -> list[NewlyShown]:
    """Return the number of cluster members and residues of each variant that are in no earlier
    variant; zeros without --sample-clusters."""
    rows, job = partition.rows, task.job
    if not job.sampled:
        return [NewlyShown()] * job.variants.stop
    facts = (rows.residues, rows.hash, rows.ordinal)
    return newly_shown(drawn, *facts, job.options, job.variants.stop)


def _cropped_records(
    partition: Partition, status: NDArray[np.int8], options: DatasetOptions
) -> int:
    """Return the number of records of variant 0 that lose residues by cropping.

    Args:
        status: int8[N], status of each record in variant 0.
    """
    if options.long not in CROPPING:
        return 0
    long = partition.rows.residues > options.longest_piece
    return int(np.count_nonzero((status == KEPT) & long))


def pack_rests(task: RestTask, on_bytes: OnBytes) -> PackResult:
    """Write the shards and records of rests; return the result for the manifest.

    Unless the task is final, sequences that do not fill a bucket are saved as a smaller rest.

    Raises:
        BuildError: a file cannot be written.
        DamagedSpillError: a rest is damaged.
    """
    partition, sequences = load_rests(task.work, task.rests)
    on_bytes(partition.tokens.size)
    order = shuffle_order(sequences)
    variant = VariantSequences(task.variant, sequences.take(order), order)
    return _pack_and_write(task, partition, [variant])


def _pack_and_write(
    task: ReduceTask | RestTask,
    partition: Partition,
    variants: Iterable[VariantSequences],
    exclusions: ExclusionIndex | None = None,
) -> PackResult:
    """Pack the sequences of each variant; write shards and rests. For variant 0, also write
    records/.

    The task that packs a record's first sequence in variant 0 writes the record's row.

    Args:
        partition: a ReduceTask's partition has a row for each record. A RestTask's partition has a
            row for each sequence, and only the rows of first sequences are written.
        exclusions: entries of --exclude; None without --exclude, and for a RestTask, because all
            its records are kept.
    """
    packed: list[PackedVariant] = []
    records, matched = None, 0
    with Finisher() as finisher:
        for variant in variants:
            number = variant.number
            written, left_over = _write_splits(task, partition, variant, finisher)
            if number == 0:
                records, matched = _write_rows(
                    task, partition, variant, left_over, exclusions, finisher
                )
            # records/ is written with variant 0, so the rests of other variants need no ids
            take = partition.take if number == 0 else partition.rows.take
            rest = None
            if not task.final:
                rows = [take(part.row) for part in left_over]
                rest = save_rest(task.work, task.rest(number), left_over, rows, partition.tokens)
            packed.append(
                PackedVariant(
                    variant=number,
                    rest=rest,
                    shards={split: tuple(result.entries) for split, result in written.items()},
                    statistics={split: result.statistics for split, result in written.items()},
                    token_counts=tuple(
                        np.sum(
                            [result.token_counts for result in written.values()], axis=0
                        ).tolist()
                    ),
                )
            )
    return PackResult(packed=tuple(packed), records=records, metadata_records=matched)


def _write_rows(
    task: ReduceTask | RestTask,
    partition: Partition,
    variant: VariantSequences,
    left_over: list[LeftOver],
    exclusions: ExclusionIndex | None,
    finisher: Finisher,
) -> tuple[RecordsEntry, int]:
    """Write the records/ file of a task; see `write_records`."""
    job = task.job
    to_write = _rows_to_write(len(partition.rows), variant, left_over)
    return write_records(
        partition.rows_to_write(to_write, np.concatenate([part.row for part in left_over])),
        f"records/{task.stem(0)}.parquet",
        names=load_map_outcome(job.work, job.mapped).names,
        added=AddedColumns(
            keep_header=job.options.keep_header,
            metadata=metadata_table(job.prepared, job.work),
            exclusions=exclusions,
        ),
        out=job.out,
        finisher=finisher,
    )


def _write_splits(
    task: ReduceTask | RestTask,
    partition: Partition,
    variant: VariantSequences,
    finisher: Finisher,
) -> tuple[dict[str, WrittenSplit], list[LeftOver]]:
    """Pack and write each split, and return the left-over sequences.

    For variant 0, set shard and bucket of each record in the partition's rows.
    """
    written: dict[str, WrittenSplit] = {}
    left_over: list[LeftOver] = []
    for code, split in enumerate(SPLITS):
        chosen = np.flatnonzero(partition.rows.split[variant.row] == code)
        part, part_row = variant.sequences.take(chosen), variant.row[chosen]
        result = write_split(
            partition.tokens,
            part,
            task.job.options,
            split=split,
            stem=task.stem(variant.number),
            final=task.final,
            counts_tokens=variant.number == 0,
            out=task.job.out,
            finisher=finisher,
        )
        if variant.number == 0:
            partition.rows.place(part_row, part.first, result)
        left_over.append(LeftOver(code, part.take(result.left_over), part_row[result.left_over]))
        written[split] = result
    return written, left_over


def _rows_to_write(
    rows: int, variant: VariantSequences, left_over: list[LeftOver]
) -> NDArray[np.bool_]:
    """Return a mask of the rows that this task writes, bool[rows].

    This task writes records that were not kept, and records whose first sequence this task packed.
    """
    to_write = np.ones(rows, dtype=np.bool_)
    first = variant.sequences.first
    to_write[variant.row[~first]] = False
    to_write[variant.row[first]] = True
    for part in left_over:
        to_write[part.row[part.sequences.first]] = False
    return to_write
