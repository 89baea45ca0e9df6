"""`thdpack verify --deep`: check every file, and compare records/ with the buckets.

1. Check each records/ file, and copy the facts of its records to a work file (`read_rows.py`).
   Check that there is exactly one row for each record.
2. Check each shard, and compare each sequence with its record's row: shard, bucket, split, number
   of residues, hash and unknown letters (`compare_shard.py`).
3. Compare statuses, duplicates and exclusions with each other and with the manifest. Check that the
   first sequence of each kept record is in the buckets of each variant exactly once. With
   --sample-clusters, check instead that each variant has one kept record of each cluster, and each
   kept record without a cluster once (`compare_variants.py`).
4. Join the pieces of each record that `--long split` cut, and check the joined record
   (`long_records.py`).
5. Compare the first pieces of records: their first max_seq_len - 2 residues, or the whole record if
   it is shorter. With `--dedup cropped`, no two kept records have equal first pieces. With
   clusters, records with equal first pieces are in one cluster.

Steps 1 and 2 run as tasks in several processes. The work file has 64 bytes for each record. With
`--dedup cropped` or clusters, a second work file has 16 bytes for each record. Each variant
after variant 0 adds one byte for each record. The last steps also need about 16 bytes of memory for
each record. With `--long split`, the work files hold the residues of long records, too. Work files
are mapped into memory, so the operating system can write their pages to disk when memory is scarce.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from pipeline.build.verify.compare_shard import (
    ShardResult,
    ShardTask,
    compare_shard,
)
from pipeline.build.verify.compare_variants import check_clusters, compare_variants
from pipeline.build.verify.deep_job import DeepJob
from pipeline.build.verify.equal_hashes import repeated, with_low
from pipeline.build.verify.findings import Findings
from pipeline.build.verify.long_records import LongRecords
from pipeline.build.verify.read_rows import RowsResult, RowsTask, read_rows
from pipeline.build.verify.row_file import rows_at, same_hash
from pipeline.executors.executor import Executor, TaskT, Work
from pipeline.storage.folder import Folder
from schemas.manifest import Manifest
from schemas.records import STATUS_CODES, Status
from schemas.text.phrases import plural

_BLOCK: Final = 1 << 20
"""Number of records that are compared at a time. This limit bounds memory."""


def compare_records(
    dataset: Folder, manifest: Manifest, work: Path, executor: Executor
) -> tuple[list[str], list[str]]:
    """Check all files, and compare records/ with the buckets.

    Args:
        work: empty local folder for work files.
    Returns:
        1. One line for each fault of a file.
        2. One line for each contradiction, missing row or wrong number of rows. records/ and
           buckets are compared only if no file has a fault and each record has one row.
    Raises:
        BuildError: the disk has too little space for the work files, or workers died.
    """
    job = DeepJob.of(manifest, dataset, work)
    rows = _run(executor, read_rows, [RowsTask(job, entry) for entry in manifest.records])
    problems = [line for result in rows for line in result.problems]
    unreadable = [line for result in rows for line in result.unreadable]
    if not problems and not unreadable:
        unreadable = _missing_rows(job, manifest, rows)
    compare = not problems and not unreadable  # otherwise only check the shards
    if compare and job.split_long:
        LongRecords.make_room(job)
    shards = _run(
        executor,
        compare_shard,
        [
            ShardTask(job, variant, split, entry, compare)
            for variant, split, entry in manifest.all_shards()
        ],
    )
    problems += [line for result in shards for line in result.problems]
    if problems or unreadable:
        return problems, unreadable
    return [], _contradictions(job, manifest, rows, shards)


def _run(executor: Executor, work: Work[TaskT, Any], tasks: Sequence[TaskT]) -> list[Any]:
    """Run tasks, and return their results in order."""
    results: dict[int, Any] = {}
    executor.run(work, tasks, results.__setitem__, lambda _: None)
    return [results[i] for i in range(len(tasks))]


def _missing_rows(job: DeepJob, manifest: Manifest, results: Sequence[RowsResult]) -> list[str]:
    """Check that each record has a row. There are as many rows as records, so none is repeated."""
    findings = Findings()
    findings.add("a record does not have exactly one row", np.flatnonzero(job.rows["present"] == 0))
    sources = sum((result.sources for result in results), Counter[str]())
    return findings.lines() + [
        f"records/: {sources[expected.name]} records from {expected.name}, "
        f"the manifest says {expected.records}"
        for expected in manifest.inputs
        if sources[expected.name] != expected.records
    ]


def _contradictions(
    job: DeepJob, manifest: Manifest, rows: Sequence[RowsResult], shards: Sequence[ShardResult]
) -> list[str]:
    """Return one line for each contradiction between records/, buckets and manifest."""
    counts = sum((result.statuses for result in rows), np.zeros(len(STATUS_CODES), dtype=np.int64))
    lines = [
        f"records/: {plural(int(count), 'record')} {status}, "
        f"the manifest says {manifest.records_by_status[status]}"
        for status, count in zip(Status, counts, strict=True)
        if count != manifest.records_by_status[status]
    ]
    findings = Findings()
    findings.merge([result.findings for result in rows])
    _check_duplicates(job, findings)
    _check_excluded(job, findings)
    kept = job.rows["status"] == STATUS_CODES.index(Status.KEPT)
    if manifest.options["dedup"] != "none":
        what = "kept although an earlier record has the same hash"
        findings.add(what, repeated(job.rows["hash"], kept))
    findings.merge([result.findings for result in shards])
    seen = kept & (job.rows["seen"] != 0)
    lines += compare_variants(job, manifest.sampled_clusters, kept, shards, findings)
    if job.dedup_cropped:
        what = "kept although an earlier record is the same after cropping"
        findings.add(what, repeated(job.first_pieces, seen))
    if job.clusters:
        check_clusters(job, seen & ~job.has_random_window(job.rows), findings)
    if job.split_long:
        LongRecords(job).check(job, [result.pieces for result in shards], findings)
    outside = [line for result in shards for line in result.outside]
    return [*lines, *outside, *findings.lines()]


def _check_duplicates(job: DeepJob, findings: Findings) -> None:
    """Check that each duplicate names an earlier kept record with the same hash."""
    for begin in range(0, job.records, _BLOCK):
        block = job.rows[begin : begin + _BLOCK]
        duplicate = block["status"] == STATUS_CODES.index(Status.DUPLICATE)
        ordinal = begin + np.flatnonzero(duplicate & (block["duplicate_of"] >= 0))
        copies = rows_at(job.rows, ordinal)
        earlier = copies["duplicate_of"] < ordinal
        originals = rows_at(job.rows, np.where(earlier, copies["duplicate_of"], 0))
        same = same_hash(originals["hash"], copies["hash"])
        if job.dedup_cropped:
            # accept two long records: their first pieces may be equal, but the hashes of first
            # pieces are known only for kept records
            shorter = np.minimum(originals["residues"], copies["residues"])
            same |= shorter >= job.longest_piece
        kept = originals["status"] == STATUS_CODES.index(Status.KEPT)
        findings.add(
            "its duplicate_of is not an earlier kept record of the same hash",
            ordinal[~(same & earlier & kept)],
        )
        findings.add(
            "a duplicate in another cluster than the record that its duplicate_of names",
            ordinal[
                (copies["cluster"] != originals["cluster"])
                & job.of_one_generation(copies["duplicate_of"], ordinal)
            ],
        )


def _check_excluded(job: DeepJob, findings: Findings) -> None:
    """Check that all records with the residues of an excluded record are excluded."""
    rows = job.rows
    excluded = rows["hash"][rows["status"] == STATUS_CODES.index(Status.EXCLUDED)]
    if not excluded.size:
        return
    kept = rows["status"] == STATUS_CODES.index(Status.KEPT)
    suspects = with_low(rows["hash"], kept, np.sort(excluded["low"]))
    if suspects.size:  # comparing whole hashes is slow
        suspects = suspects[np.isin(rows["hash"][suspects], excluded)]
    findings.add("kept although a record with the same residues is excluded", suspects)
