"""The report of raw sequences, before preprocessing: one streaming pass through the build's own parser, then a forecast of its packing.

Reads whatever `thdpack preprocess` reads. Threads share a large plain file; kernels leave Python to the others. Memory: two blocks of 50 MB a
thread, and about 32 bytes and the id of each record, for duplicates are found by hash as a build finds them.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.hash_kernel import count_values
from pipeline.build.arrays.sequence_hashes import HASH, first_piece_hashes, sequence_hashes
from pipeline.build.build_plan import Plan, plan
from pipeline.build.destination.local_destination import spool_stdin
from pipeline.build.map_stage.partition_records import record_blocks, status_of
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress import Reporter
from pipeline.build.reduce_stage.deduplicate import (
    count_copies,
    cropped_copy_candidates,
    mark_duplicates,
)
from pipeline.build.tasks import MapTask, OnBytes
from pipeline.executors.processes import cores
from pipeline.inputs.error_location import no_residue
from pipeline.report.gather.assemble import Facts, most_repeated, settings_of
from pipeline.report.gather.budget import budget
from pipeline.report.gather.compare import Side
from pipeline.report.gather.composition import composition
from pipeline.report.gather.lengths import Counted, lengths_report, sequences_of
from pipeline.report.gather.predict import IDS_TRIED, PredictedSplit, predict, records_bytes
from pipeline.report.gather.splits import cost_counts, split_report, together
from pipeline.report.gather.waste import waste
from pipeline.report.model import TOP, DuplicateFlow, Prediction, RecordNote, Report, SplitReport
from pipeline.storage.open_folder import folder_of
from schemas import __version__
from schemas.records import STATUS_CODES, Status
from schemas.shard import slots_for
from schemas.vocabulary import ESM2

_KEPT: Final = STATUS_CODES.index(Status.KEPT)


@dataclass(frozen=True, slots=True)
class _Part:
    """What was read of one range of an input, or of all of them: N records in input order.

    residues: int64[N]; status: int8[N], index into STATUS_CODES; hashes: HASH[N]; cropped: HASH[N], of first pieces
    source: int32[N], index into the inputs
    ids: for each block, the ids' bytes and int64 where each ends
    letters: int64[256], how often each token id occurs; unknown: records that hold <unk>, and how many they hold
    """

    residues: NDArray[np.int64]
    status: NDArray[np.int8]
    hashes: NDArray[np.void]
    cropped: NDArray[np.void]
    source: NDArray[np.int32]
    ids: list[tuple[bytes, NDArray[np.int64]]]
    letters: NDArray[np.int64]
    unknown: tuple[int, int]

    @property
    def id_bytes(self) -> int:
        return sum(len(text) for text, _ in self.ids)

    def some_ids(self) -> bytes:
        """The first ids, enough to try how they compress; the same however the input was cut."""
        found = bytearray()
        for text, _ in self.ids:
            found += text[: IDS_TRIED - len(found)]
        return bytes(found)

    def id(self, ordinal: int) -> str:
        """A record's id, as records/ would hold it."""
        for text, ends in self.ids:
            if ordinal < ends.size:
                return text[int(ends[ordinal - 1]) if ordinal else 0 : int(ends[ordinal])].decode(
                    "utf-8", "backslashreplace"
                )
            ordinal -= ends.size
        raise AssertionError("no such record")


def sequences_side(options: PreprocessOptions, progress: Reporter) -> Side:
    """The report of `options.inputs`, with the hash of every record for a comparison.

    Raises:
        InputError: an input cannot be read or breaks a rule.
    """
    with tempfile.TemporaryDirectory(prefix="thdpack-stats-") as scratch:
        spooled = spool_stdin(options, Path(scratch))
        planned = plan(options, spool=None if spooled is None else str(spooled))
        progress.phase("read", planned.input_bytes)
        part = _read(planned, options, progress)
        for i, source in enumerate(planned.sources):
            if not part.residues[part.source == i].any():
                raise no_residue(source)
    return Side(_report(part, planned, options), part.hashes, part.residues)


def _read(planned: Plan, options: PreprocessOptions, progress: Reporter) -> _Part:
    """All records of all inputs, in order."""
    lock, stopped = threading.Lock(), threading.Event()

    def on_bytes(count: int) -> None:
        if stopped.is_set():
            raise InterruptedError("another range failed, or the user interrupted")
        with lock:
            progress.advance(count)

    def read(index: int) -> _Part:
        source, begin, end = planned.ranges[index]
        task = MapTask(
            index=index,
            source=planned.sources[source],
            begin=begin,
            end=end,
            partitions=1,
            options=options.of_dataset,
            work=folder_of(Path()),
        )
        return _read_range(task, source, on_bytes)

    with ThreadPoolExecutor(cores()) as threads:
        try:
            parts = list(threads.map(read, range(len(planned.ranges))))
        finally:
            stopped.set()  # or leaving would wait for all that is still to be read
    return _Part(
        residues=np.concatenate([part.residues for part in parts]),
        status=np.concatenate([part.status for part in parts]),
        hashes=np.concatenate([part.hashes for part in parts]),
        cropped=np.concatenate([part.cropped for part in parts]),
        source=np.concatenate([part.source for part in parts]),
        ids=[ids for part in parts for ids in part.ids],
        letters=np.sum([part.letters for part in parts], axis=0),
        unknown=(sum(part.unknown[0] for part in parts), sum(part.unknown[1] for part in parts)),
    )


def _read_range(task: MapTask, source: int, on_bytes: OnBytes) -> _Part:
    residues, status, hashes = (
        [np.empty(0, dtype=np.int64)],
        [np.empty(0, dtype=np.int8)],
        [np.empty(0, dtype=HASH)],
    )
    cropped = [np.empty(0, dtype=HASH)]
    ids = []
    letters = np.zeros(256, dtype=np.int64)
    with_unknown = unknown = 0
    with closing(record_blocks(task, on_bytes)) as blocks:
        for block, _ in blocks:
            residues.append(np.diff(block.ends, prepend=0))
            status.append(status_of(block, task.options))
            hashes.append(sequence_hashes(block.tokens, block.ends))
            cropped.append(
                first_piece_hashes(block.tokens, block.ends, hashes[-1], task.options.longest_piece)
            )
            ids.append((block.ids.tobytes(), block.id_ends.copy()))
            count_values(block.tokens, letters)
            with_unknown += int(np.count_nonzero(block.unknown))
            unknown += int(block.unknown.sum())
    sizes = np.concatenate(residues)
    return _Part(
        residues=sizes,
        status=np.concatenate(status),
        hashes=np.concatenate(hashes),
        cropped=np.concatenate(cropped),
        source=np.full(sizes.size, source, dtype=np.int32),
        ids=ids,
        letters=letters,
        unknown=(with_unknown, unknown),
    )


def _facts(
    part: _Part, names: Sequence[str], status: NDArray[np.int8], duplicate_of: NDArray[np.int64]
) -> Facts:
    """The same facts that a dataset's records/ would give."""
    times = np.bincount(duplicate_of[duplicate_of >= 0], minlength=part.residues.size).astype(
        np.uint32
    )
    pair = part.source.astype(np.int64) * len(STATUS_CODES) + status
    records, residues = np.bincount(pair), np.bincount(pair, weights=part.residues)
    fates = {
        (names[code // len(STATUS_CODES)], STATUS_CODES[code % len(STATUS_CODES)].value): (
            int(records[code]),
            int(residues[code]),
        )
        for code in np.flatnonzero(records).tolist()
    }

    def note(ordinal: int) -> RecordNote:
        return RecordNote(
            ordinal=ordinal,
            id=part.id(ordinal),
            source=names[part.source[ordinal]],
            residues=int(part.residues[ordinal]),
            status=STATUS_CODES[status[ordinal]].value,
            times=1 + int(times[ordinal]),
        )

    return Facts(
        fates=fates,
        all_in=Counted.of(part.residues),
        kept=Counted.of(part.residues[status == _KEPT]),
        unknown_records=part.unknown[0],
        unknown_residues=part.unknown[1],
        longest=tuple(note(ordinal) for ordinal in _longest(part.residues)),
        repeated=tuple(note(ordinal) for ordinal in most_repeated(times)),
        duplicates=_duplicates(part.source, duplicate_of, names),
    )


def _longest(residues: NDArray[np.int64]) -> list[int]:
    """The ordinals of the longest records, the first of equally long ones first."""
    limit = np.partition(residues, -TOP)[-TOP] if residues.size > TOP else 0
    candidates = np.flatnonzero(residues >= limit)
    order = np.lexsort((candidates, -residues[candidates]))
    return [int(ordinal) for ordinal in candidates[order[:TOP]]]


def _duplicates(
    source: NDArray[np.int32], duplicate_of: NDArray[np.int64], names: Sequence[str]
) -> tuple[DuplicateFlow, ...]:
    """Which input's records are copies of which input's."""
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


def _duplicates_found(
    part: _Part, options: PreprocessOptions
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Status of each record, and for duplicates the ordinal of the record that stays (else -1)."""
    if options.dedup == "none":
        return part.status, np.full(part.status.size, -1, dtype=np.int64)
    return mark_duplicates(
        part.status,
        part.cropped if options.dedup == "cropped" else part.hashes,
        np.arange(part.status.size),
    )


def _report(part: _Part, planned: Plan, options: PreprocessOptions) -> Report:
    names = [source.name for source in planned.sources]
    status, duplicate_of = _duplicates_found(part, options)
    facts = _facts(part, names, status, duplicate_of)
    settings = settings_of(ESM2.name, options.shape())
    packed = predict(part.residues, status, part.hashes, part.cropped, options, planned.partitions)
    totals = together(found.statistics.totals() for found in packed.values())
    costs = cost_counts(found.statistics.histograms().get("cost") for found in packed.values())
    sequences = sequences_of(facts.kept, max_seq_len=options.max_seq_len, long=options.long)
    return Report(
        kind="fasta",
        name=" ".join(options.inputs),
        thdpack=__version__,
        manifest_digest=None,
        build=None,
        parent=None,
        generation=None,
        slots=None,
        settings=settings,
        records=facts.all_in.number,
        by_status=facts.by_status,
        inputs=facts.inputs([(source.name, source.bytes) for source in planned.sources]),
        cropped_copies=count_copies(
            part.cropped[cropped_copy_candidates(status, part.residues, options)]
        ),
        residues_in=facts.all_in.total,
        residues_kept=totals.tokens - 2 * totals.sequences,
        tokens=totals.tokens,
        lengths=lengths_report(facts.all_in, facts.kept, settings),
        composition=composition(
            _letters(part.letters),
            over="input",
            unknown_records=facts.unknown_records,
            unknown_residues=facts.unknown_residues,
        ),
        splits=tuple(_split(split, found, options) for split, found in packed.items()),
        waste=waste(sequences, totals, costs, settings, predicted=True),
        budget=budget(packed["train"].statistics.tokens),
        longest=facts.longest,
        repeated=facts.repeated,
        duplicates=facts.duplicates,
        prediction=_prediction(packed, part, planned, options),
    )


def _prediction(
    packed: Mapping[str, PredictedSplit], part: _Part, planned: Plan, options: PreprocessOptions
) -> Prediction:
    totals = together(found.statistics.totals() for found in packed.values())
    return Prediction(
        shards=sum(found.shards for found in packed.values()),
        buckets=totals.buckets,
        fill=totals.fill(options.capacity),
        slots=slots_for(totals.pieces_max),
        bytes=sum(found.bytes(options) for found in packed.values())
        + records_bytes(part.residues.size, part.some_ids(), part.id_bytes, planned.partitions),
    )


def _letters(counts: NDArray[np.int64]) -> dict[str, int]:
    return {ESM2.tokens[i]: int(counts[i]) for i in ESM2.in_sequence}


def _split(name: str, found: PredictedSplit, options: PreprocessOptions) -> SplitReport:
    statistics = found.statistics
    return split_report(
        name,
        statistics.totals(),
        statistics.histograms(),
        capacity=options.capacity,
        shards=found.shards,
        shard_bytes=found.bytes(options),
    )
