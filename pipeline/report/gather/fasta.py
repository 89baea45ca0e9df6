"""Make the report of raw sequences: read the records once, and predict how a build would pack them.

Hashes show which records are duplicates, as in a build. An ordinal is a record's position in the
input order. The docstrings of `read_sequences.py` and `predict.py` state time and memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.build.build_plan import Plan, plan
from pipeline.build.destination.local_destination import spool_stdin
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import Reporter
from pipeline.build.reduce_stage.deduplicate import (
    count_copies,
    cropped_copy_candidates,
    mark_duplicates,
)
from pipeline.inputs.error_location import no_residue, stdin_named
from pipeline.inputs.named.ignore import with_ignore
from pipeline.report.gather.assemble import Facts, PackedSplit, assemble, settings_of, together
from pipeline.report.gather.compare import Side
from pipeline.report.gather.lengths import Counted, sequences_of
from pipeline.report.gather.most_repeated import most_repeated
from pipeline.report.gather.predict import predict, records_bytes
from pipeline.report.gather.read_sequences import ReadRecords, read_records
from pipeline.report.model import TOP, DuplicateFlow, RecordNote, Report
from pipeline.report.model_estimates import Prediction
from schemas.records import STATUS_CODES, Status
from schemas.shard import slots_for
from schemas.vocabulary import ESM2

_KEPT: Final = STATUS_CODES.index(Status.KEPT)


def sequences_side(options: PreprocessOptions, progress: Reporter) -> Side:
    """Return the report of `options.inputs`, and each record's hash and length for a comparison.

    Raises:
        InputError: an input cannot be read, or its content is invalid.
    """
    planned, records = read_inputs(options, progress)
    return Side(_report(records, planned, options), records.hashes, records.residues)


def read_inputs(options: PreprocessOptions, progress: Reporter) -> tuple[Plan, ReadRecords]:
    """Read the records of `options.inputs`.

    Raises:
        InputError: an input cannot be read, or its content is invalid.
    """
    with tempfile.TemporaryDirectory(prefix="thdpack-stats-") as scratch:
        spooled = spool_stdin(options, Path(scratch))
        spool = None if spooled is None else str(spooled)
        with stdin_named(spool):
            planned = plan(options, spool=spool)
            progress.phase("read", planned.input_bytes)
            records = read_records(planned, options.of_dataset, progress)
            for i, source in enumerate(planned.sources):
                if not records.residues[records.source == i].any():
                    raise with_ignore(no_residue(source), source.url, found=source.found)
    return planned, records


def _report(records: ReadRecords, planned: Plan, options: PreprocessOptions) -> Report:
    status, duplicate_of = _duplicates_found(records, options)
    facts = _facts(records, [source.name for source in planned.sources], status, duplicate_of)
    packed = predict(records, status, options, planned.partitions)
    candidates = cropped_copy_candidates(status, records.residues, options)
    return assemble(
        facts,
        packed,
        sequences_of(facts.kept, most=options.longest_piece, long=options.long),
        kind="fasta",
        name=" ".join(options.inputs),
        settings=settings_of(ESM2.name, options.shape()),
        limits=options,
        inputs=[(source.name, source.bytes) for source in planned.sources],
        letters={ESM2.tokens[i]: int(records.letters[i]) for i in ESM2.in_sequence},
        cropped_copies=count_copies(records.cropped[candidates]),
        prediction=_prediction(list(packed.values()), records, planned, options),
        warnings=records.warnings,
    )


def _duplicates_found(
    records: ReadRecords, options: PreprocessOptions
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Find the duplicates among the records, as the option --dedup defines them.

    Returns:
        int8[N], status of each record; int64[N], ordinal of the first copy of a duplicate, -1 for
        other records.
    """
    size = records.status.size
    if options.dedup == "none":
        return records.status, np.full(size, -1, dtype=np.int64)
    hashes = records.cropped if options.dedup == "cropped" else records.hashes
    return mark_duplicates(records.status, hashes, np.arange(size))


def _facts(
    records: ReadRecords,
    names: Sequence[str],
    status: NDArray[np.int8],
    duplicate_of: NDArray[np.int64],
) -> Facts:
    """Return the counts that records/ would show in a dataset built from these records."""
    times = np.bincount(duplicate_of[duplicate_of >= 0], minlength=status.size).astype(np.uint32)
    pair = records.source.astype(np.int64) * len(STATUS_CODES) + status
    counts, residues = np.bincount(pair), np.bincount(pair, weights=records.residues)
    fates = {
        (names[code // len(STATUS_CODES)], STATUS_CODES[code % len(STATUS_CODES)].value): (
            int(counts[code]),
            int(residues[code]),
        )
        for code in np.flatnonzero(counts).tolist()
    }

    def note(ordinal: int) -> RecordNote:
        return RecordNote(
            ordinal=ordinal,
            id=records.id(ordinal),
            source=names[records.source[ordinal]],
            residues=int(records.residues[ordinal]),
            status=STATUS_CODES[status[ordinal]].value,
            times=1 + int(times[ordinal]),
        )

    return Facts(
        fates=fates,
        all_in=Counted.of(records.residues),
        kept=Counted.of(records.residues[status == _KEPT]),
        unknown_records=records.unknown_records,
        unknown_residues=records.unknown_residues,
        longest=tuple(note(ordinal) for ordinal in _longest(records.residues)),
        repeated=tuple(note(ordinal) for ordinal in most_repeated(times)),
        duplicates=_duplicates(records.source, duplicate_of, names),
    )


def _longest(residues: NDArray[np.int64]) -> list[int]:
    """Return the ordinals of the TOP longest records, in descending order of length.

    Records of equal length are in input order.
    """
    limit = np.partition(residues, -TOP)[-TOP] if residues.size > TOP else 0
    candidates = np.flatnonzero(residues >= limit)
    order = np.lexsort((candidates, -residues[candidates]))
    return [int(ordinal) for ordinal in candidates[order[:TOP]]]


def _duplicates(
    source: NDArray[np.int32], duplicate_of: NDArray[np.int64], names: Sequence[str]
) -> tuple[DuplicateFlow, ...]:
    """Count the duplicates between each pair of inputs."""
    copies = np.flatnonzero(duplicate_of >= 0)
    pairs, counts = np.unique(
        source[copies].astype(np.int64) * len(names) + source[duplicate_of[copies]],
        return_counts=True,
    )
    return tuple(
        DuplicateFlow(
            source=names[pair // len(names)], original=names[pair % len(names)], records=count
        )
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True)
    )


def _prediction(
    splits: Sequence[PackedSplit], records: ReadRecords, planned: Plan, options: PreprocessOptions
) -> Prediction:
    totals = together(split.totals for split in splits)
    of_records = records_bytes(records.residues.size, records.headers, planned.partitions)
    return Prediction(
        shards=sum(split.shards for split in splits),
        buckets=totals.buckets,
        fill=totals.fill(options.capacity),
        slots=slots_for(totals.pieces_max),
        bytes=sum(split.bytes for split in splits) + of_records,
    )
