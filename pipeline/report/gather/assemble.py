"""Make a report from counts. The code is the same for a dataset and for raw sequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from pipeline.report.distributions import added, distribution_of
from pipeline.report.gather.budget import budget
from pipeline.report.gather.composition import composition
from pipeline.report.gather.lengths import Counted, lengths_report
from pipeline.report.gather.waste import waste
from pipeline.report.model import (
    DuplicateFlow,
    InputFlow,
    RecordNote,
    Report,
    Settings,
    SplitReport,
)
from pipeline.report.model_estimates import Prediction
from schemas import __version__
from schemas.manifest_entries import Histogram, SplitTotals
from schemas.records import Status
from schemas.shard import SequenceLimits

_SUMS: Final = ("buckets", "sequences", "tokens", "cost_sum", "cost_square_sum")
_LARGEST: Final = ("cost_max", "seqs_max", "pieces_max")


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Counts of the input records.

    fates: number of records and number of residues, by name of the input and status
    all_in: lengths of all records, in residues before cropping
    kept: lengths of the kept records of variant 0, in residues before cropping
    unknown_records: number of records that contain unknown letters
    unknown_residues: number of unknown letters
    longest, repeated, duplicates: see `Report`
    """

    fates: Mapping[tuple[str, str], tuple[int, int]]
    all_in: Counted
    kept: Counted
    unknown_records: int
    unknown_residues: int
    longest: tuple[RecordNote, ...]
    repeated: tuple[RecordNote, ...]
    duplicates: tuple[DuplicateFlow, ...]

    @property
    def by_status(self) -> dict[str, int]:
        return {
            status: sum(count for (_, found), (count, _) in self.fates.items() if found == status)
            for status in Status
        }

    def inputs(self, sizes: Sequence[tuple[str, int]]) -> tuple[InputFlow, ...]:
        """Return the counts of each input.

        sizes: name of each input, and its size in bytes
        """
        return tuple(self._input(name, size) for name, size in sizes)

    def _input(self, name: str, size: int) -> InputFlow:
        found = {status: self.fates.get((name, status), (0, 0)) for status in Status}
        return InputFlow(
            name=name,
            bytes=size,
            records=sum(count for count, _ in found.values()),
            residues=sum(residues for _, residues in found.values()),
            by_status={status.value: count for status, (count, _) in found.items()},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedSplit:
    """Statistics of the existing or predicted buckets of a split.

    totals: sums and maxima over the buckets
    histograms: number of buckets by fill, by cost and by number of sequences
    shards: number of shards
    bytes: total size of the shards
    """

    totals: SplitTotals
    histograms: Mapping[str, Histogram]
    shards: int
    bytes: int


def settings_of(vocabulary: str, options: Mapping[str, Any]) -> Settings:
    """Return the build options that a report shows."""
    names = [field.name for field in fields(Settings) if field.name != "vocabulary"]
    return Settings(vocabulary=vocabulary, **{name: options[name] for name in names})


def assemble(
    facts: Facts,
    splits: Mapping[str, PackedSplit],
    sequences: Counted,
    *,
    kind: Literal["dataset", "fasta"],
    name: str,
    settings: Settings,
    limits: SequenceLimits,
    inputs: Sequence[tuple[str, int]],
    letters: Mapping[str, int],
    cropped_copies: int,
    prediction: Prediction | None = None,
    warnings: tuple[str, ...] = (),
) -> Report:
    """Return a report. The caller then sets the fields that only the report of a dataset has.

    Args:
        sequences: lengths of the sequences in tokens, <cls> and <eos> included.
        limits: longest sequence that the options allow, without and with length-multiple padding.
        inputs: name of each input, and its size in bytes.
        letters: number of residues by letter, in the buckets of a dataset or in the whole input.
        Other arguments: see `Report`.
    """
    totals = together(split.totals for split in splits.values())
    costs = added(distribution_of(split.histograms.get("cost")) for split in splits.values())
    return Report(
        kind=kind,
        name=name,
        thdpack=__version__,
        settings=settings,
        records=facts.all_in.number,
        by_status=facts.by_status,
        inputs=facts.inputs(inputs),
        cropped_copies=cropped_copies,
        residues_in=facts.all_in.total,
        residues_kept=totals.tokens - 2 * totals.sequences,
        tokens=totals.tokens,
        lengths=lengths_report(
            facts.all_in, facts.kept, crop=limits.longest_piece, long=settings.long
        ),
        composition=composition(
            letters,
            over="buckets" if kind == "dataset" else "input",
            unknown_records=facts.unknown_records,
            unknown_residues=facts.unknown_residues,
        ),
        splits=tuple(_split(name, split, settings.capacity) for name, split in splits.items()),
        waste=waste(
            sequences,
            totals,
            splits["train"].totals,
            costs,
            settings,
            longest_span=limits.longest_span,
            predicted=kind == "fasta",
        ),
        budget=budget(splits["train"].totals.tokens),
        longest=facts.longest,
        repeated=facts.repeated,
        duplicates=facts.duplicates,
        prediction=prediction,
        warnings=warnings,
    )


def together(parts: Iterable[SplitTotals]) -> SplitTotals:
    """Combine the totals of several splits into one."""
    splits = list(parts)
    return SplitTotals(
        **{name: sum(getattr(split, name) for split in splits) for name in _SUMS},
        **{name: max(getattr(split, name) for split in splits) for name in _LARGEST},
    )


def _split(name: str, split: PackedSplit, capacity: int) -> SplitReport:
    totals, histograms = split.totals, split.histograms
    return SplitReport(
        name=name,
        shards=split.shards,
        bytes=split.bytes,
        buckets=totals.buckets,
        sequences=totals.sequences,
        tokens=totals.tokens,
        fill=totals.fill(capacity),
        spread=totals.spread,
        peak=totals.peak,
        seqs_max=totals.seqs_max,
        fill_counts=distribution_of(histograms.get("fill")),
        cost_counts=distribution_of(histograms.get("cost")),
        sequences_counts=distribution_of(histograms.get("sequences")),
    )
