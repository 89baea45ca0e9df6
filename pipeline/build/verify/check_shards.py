"""Check a dataset's files: sizes, hashes, schema, and every rule of every bucket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.bucket_kernel import check_buckets
from pipeline.build.task_results import VerifyResult
from pipeline.build.tasks import OnBytes
from pipeline.build.verify.verify_task import BucketRules, VerifyTask
from pipeline.reader.arrow_columns import numbers
from pipeline.reader.mapped_shard import checked_content
from pipeline.storage.file_hash import difference, hash_file
from pipeline.storage.folder import Folder
from schemas.errors import BuildError, DatasetError, InputError, StoreError
from schemas.manifest import Manifest
from schemas.manifest_entries import RecordsEntry, ShardEntry
from schemas.shard import shard_schema
from schemas.vocabulary import VOCABULARIES

OnBatch = Callable[[pa.RecordBatch, int], None]
"""Function that takes a record batch and the row of its first bucket in the shard."""
_TASK_BYTES: Final = 32 << 20
"""Minimum size in bytes of a task's shards. Only the last task may have less. It takes about 10 ms
to check this many bytes, and much less to start a task."""
_RULES: Final = (
    "",
    "cu_seqlens does not rise from 0 to the capacity",
    "num_seqs does not agree with cu_seqlens, record or start",
    "more sequences than --max-seqs allows, or more sequences and tail pieces than slots",
    "a sequence is longer than max_seq_len, or its length is not a multiple of --length-multiple",
    "a sequence does not start with <cls>",
    "a sequence does not end with <eos>, followed only by --length-multiple padding",
    "a sequence holds a token that is neither a residue nor <unk>",
    "a sequence has no residue",
    "the tail holds a token other than <pad>, or is cut into wrong pieces",
    "num_tokens is not the number of real tokens",
    "max_seqlen is not the length of the longest sequence",
    "start is negative",
)
"""Message for each broken rule. The index is the code that the kernel `check_buckets` writes."""


def bucket_rules(manifest: Manifest) -> BucketRules:
    """Return the limits that every bucket of a dataset must obey."""
    return BucketRules(
        vocabulary=manifest.vocabulary,
        capacity=manifest.capacity,
        longest_span=manifest.longest_span,
        length_multiple=manifest.length_multiple,
        max_seqs=int(manifest.options["max_seqs"] or 0),
        slots=manifest.slots,
    )


def check_file(folder: Folder, entry: RecordsEntry) -> str | None:
    """Return a message if a file's size or hash is wrong, else None.

    Raises:
        StoreError: the file could not be read, so nothing is known about it.
    """
    try:
        if not folder.local:
            checked_content(folder, entry)
            return None
        # read in pieces, because a mapping of gigabytes would count as memory of this process
        size, digest = hash_file(folder.where(entry.name))
        return difference(folder.where(entry.name), size, digest, entry)
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return f"{folder.where(entry.name)}: missing"
        return str(error)
    except StoreError:
        raise
    except DatasetError as error:
        return str(error)


def check_shard(
    folder: Folder, entry: ShardEntry, rules: BucketRules, *, on_batch: OnBatch | None = None
) -> list[str]:
    """Return one line for each problem of a shard: size, hash, schema, buckets, and totals.

    Args:
        on_batch: function that is called with each record batch before the first broken rule.
    Raises:
        StoreError: the shard could not be read, so nothing is known about it.
    """
    problems: list[str] = []
    path = folder.where(entry.name)
    buckets = tokens = 0
    try:
        reader = pa.ipc.open_file(checked_content(folder, entry))
        if not reader.schema.equals(shard_schema(rules.capacity)):
            return [f"{path}: not the schema of a shard with --capacity {rules.capacity}"]
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            batch.validate(full=True)
            codes = _bucket_codes(batch, rules)
            problems += [
                f"{path}: bucket {buckets + int(b)}: {_RULES[codes[b]]}"
                for b in np.flatnonzero(codes)
            ]
            if on_batch is not None and not problems:
                on_batch(batch, buckets)
            buckets += batch.num_rows
            tokens += int(numbers(batch.column("num_tokens"), np.int32).sum(dtype=np.int64))
    except StoreError:
        raise
    except DatasetError as error:
        return [*problems, str(error)]
    except (pa.ArrowInvalid, OSError) as error:
        return [*problems, f"{path}: not a readable Arrow file: {error}"]
    if (buckets, tokens) != (entry.buckets, entry.tokens):
        problems.append(
            f"{path}: {buckets} buckets with {tokens} tokens, "
            f"the manifest says {entry.buckets} buckets with {entry.tokens} tokens"
        )
    return problems


def _bucket_codes(batch: pa.RecordBatch, rules: BucketRules) -> NDArray[np.int64]:
    """Return the code of the first rule that each bucket breaks, int64[buckets]; 0 for none."""
    vocabulary = VOCABULARIES[rules.vocabulary]
    inside = vocabulary.in_sequence
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    check_buckets(
        numbers(batch.column("input_ids").values, np.uint8),
        *_values_and_offsets(batch.column("cu_seqlens")),
        numbers(batch.column("num_seqs"), np.int32),
        numbers(batch.column("num_tokens"), np.int32),
        numbers(batch.column("max_seqlen"), np.int32),
        numbers(batch.column("record").offsets, np.int32),
        numbers(batch.column("start").offsets, np.int32),
        numbers(batch.column("start").values, np.int32),
        np.array(
            [
                rules.capacity,
                rules.longest_span,
                rules.length_multiple,
                rules.max_seqs,
                rules.slots,
            ],
            dtype=np.int64,
        ),
        np.array(
            [vocabulary.cls, vocabulary.pad, vocabulary.eos, inside[0], inside[-1]], dtype=np.uint8
        ),
        codes,
    )
    return codes


def _values_and_offsets(lists: pa.ListArray) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return all values of a list column, and int32[rows + 1] offsets into them."""
    return numbers(lists.values, np.int32), numbers(lists.offsets, np.int32)


def check_files(task: VerifyTask, on_bytes: OnBytes) -> VerifyResult:
    """Return one line for each problem of a task's shards and records/ files.

    Raises:
        BuildError: with `task.sync`, a file cannot be written to the disk.
        StoreError: a file could not be read.
    """
    problems: list[str] = []
    for entry in task.shards:
        problems += check_shard(task.out, entry, task.rules)
        on_bytes(entry.bytes)
    for records in task.records:
        problem = check_file(task.out, records)
        problems += [problem] if problem else []
        on_bytes(records.bytes)
    if task.sync and not problems:
        sync_new_files(task.out, [*(e.name for e in task.shards), *(e.name for e in task.records)])
    return VerifyResult(problems=tuple(problems))


def sync_new_files(out: Folder, names: Sequence[str]) -> None:
    """Sync files that a build wrote. After an error, remove them.

    They are removed because, after a failed fsync, memory may hold the right content while the disk
    does not. A rerun would then take the files for intact.

    Raises:
        BuildError: the disk is full or has a fault.
    """
    for name in names:
        try:
            out.sync([name])
        except OSError as error:
            for each in names:
                out.remove(each)
            raise BuildError(
                f"cannot write {out.where(name)}: {error.strerror or error}; "
                "make room on its disk, then run the same command to resume"
            ) from error


def verify_tasks(
    manifest: Manifest,
    out: Folder,
    work: Folder,
    variants: range | None = None,
    *,
    sync: bool = False,
) -> list[VerifyTask]:
    """Return tasks for all files. Each has about _TASK_BYTES of shards and some records/ files.

    Args:
        variants: numbers of the variants whose shards are checked; None for all. records/ belongs
            to variant 0.
        sync: True to sync the files, too.
    """
    variants = range(manifest.variants) if variants is None else variants
    groups: list[list[ShardEntry]] = [[]]
    size = 0
    for _, _, entry in manifest.all_shards(variants):
        if size >= _TASK_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += entry.bytes
    count = len(groups)
    records = manifest.records if 0 in variants else ()
    return [
        VerifyTask(
            index=i,
            shards=tuple(group),
            records=tuple(records[i::count]),
            rules=bucket_rules(manifest),
            out=out,
            work=work,
            sync=sync,
        )
        for i, group in enumerate(groups)
    ]


def check_totals(manifest: Manifest) -> list[str]:
    """Return one line for each contradiction inside a manifest."""
    problems = []
    for variant in range(manifest.variants):
        of_variant = f"variant {variant}, " if manifest.variants > 1 else ""
        shards = manifest.shards_of(variant)
        for split, totals in manifest.splits_of(variant).items():
            entries = shards.get(split, ())
            found = sum(e.buckets for e in entries), sum(e.tokens for e in entries)
            if found != (totals.buckets, totals.tokens):
                problems.append(
                    f"manifest: {of_variant}{split} has {found[0]} buckets and {found[1]} tokens "
                    f"in shards, but its totals are {totals.buckets} buckets and {totals.tokens} "
                    "tokens"
                )
            if totals.pieces_max > manifest.slots:
                problems.append(
                    f"manifest: a bucket of {of_variant}{split} needs {totals.pieces_max} slots, "
                    f"the manifest has {manifest.slots}"
                )
    if sum(e.rows for e in manifest.records) != sum(manifest.records_by_status.values()):
        problems.append(
            "manifest: the number of rows in records/ is not the sum of records_by_status"
        )
    return problems
