"""Assemble the manifest of a build from the results of its tasks.

A dataset has one or more variants. A variant is a pass over the kept records, shuffled, cropped and
packed with its own seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pipeline.build.options import DatasetOptions
from pipeline.build.progress.timeline import PhaseTimes
from pipeline.build.reduce_stage.residue_fates import ResidueFates
from pipeline.build.retire.retire_counts import RetireCounts
from pipeline.build.split_statistics import SplitStatistics
from pipeline.build.task_results import PackResult, PreparedFile, ReduceResult
from pipeline.inputs.file_names import Skipped
from schemas import __version__
from schemas.errors import NothingKeptError
from schemas.manifest import Manifest
from schemas.manifest_entries import InputEntry, SampledClusters, SplitTotals, VariantEntry
from schemas.records import Status
from schemas.shard import SPLITS, slots_for
from schemas.vocabulary import ESM2


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """Result of a build.

    fresh: True if this build wrote the dataset, False if the dataset already existed.
    fates: number of residues left out for each reason; None if `fresh` is False.
    skipped: files in input folders, or found by globs, that were not read; empty after array jobs.
    notes: lines about tables without a column of ids, and about files and ids of --exclude that no
        record matches; empty if `fresh` is False.
    added: manifest of the new records only, after an append; else None
    known: after an append, for each input whose content the dataset already had, by path or URL:
        the name of the dataset's input with that content
    mmseqs_seconds: duration of the runs of MMseqs2 in seconds; 0 after array jobs.
    resumed: True if an earlier run finished some tasks; False after array jobs.
    retired: after an append with --retire, the number of records that it retired; else None
    phases: times of the phases of this run; empty if `fresh` is False, and after array jobs
    """

    manifest: Manifest
    fresh: bool
    fates: ResidueFates | None = None
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    mmseqs_seconds: float = 0.0
    added: Manifest | None = None
    known: Mapping[str, str] = field(default_factory=dict)
    resumed: bool = False
    retired: RetireCounts | None = None
    phases: tuple[PhaseTimes, ...] = ()


def manifest_of(
    options: DatasetOptions,
    build: str,
    inputs: Sequence[InputEntry],
    parts: Sequence[PackResult],
    prepared: Sequence[PreparedFile] = (),
) -> Manifest:
    """Return a manifest with variant 0 only. Its totals are sums over all packing tasks.

    Args:
        parts: results of all packing tasks.
        prepared: files that options name.
    """
    first = _VariantSum(options, parts, 0)
    reduced = [part for part in parts if isinstance(part, ReduceResult)]
    named = {ESM2.tokens[i]: first.token_counts[i] for i in ESM2.in_sequence}
    return Manifest(
        build=build,
        version=__version__,
        vocabulary=ESM2.name,
        vocabulary_digest=ESM2.digest,
        capacity=options.capacity,
        max_seq_len=options.max_seq_len,
        slots=_slots(first.totals),
        seed=options.seed,
        options=options.shape(),
        inputs=tuple(inputs),
        named_files=tuple(file.entry for file in prepared),
        metadata_columns={name: kind for file in prepared for name, kind in file.columns.items()},
        metadata_records=sum(part.metadata_records for part in parts),
        shards=first.shards,
        records=tuple(part.records for part in parts if part.records is not None),
        records_by_status={
            status: sum(part.status.get(status, 0) for part in reduced) for status in Status
        },
        cropped_copies=sum(part.cropped_copies for part in reduced),
        residues_in=sum(part.residues_in for part in reduced),
        residues_kept=sum(named.values()),
        residue_counts=named,
        splits=first.totals,
        histograms={split: first.statistics[split].histograms() for split in SPLITS},
        sampled_clusters=_sampled_clusters(first, reduced, prepared),
    )


def _sampled_clusters(
    first: _VariantSum, reduced: Sequence[ReduceResult], prepared: Sequence[PreparedFile]
) -> SampledClusters | None:
    """Return the totals of --sample-clusters in variant 0; None without the option."""
    if not any(file.option == "sample-clusters" for file in prepared):
        return None
    return SampledClusters(
        clusters=sum(part.clusters for part in reduced),
        members=sum(part.members for part in reduced),
        members_shown=(first.new_members,),
        residues_shown=(first.new_residues,),
    )


def with_variants(
    manifest: Manifest, options: DatasetOptions, parts: Sequence[PackResult], variants: range
) -> Manifest:
    """Return the manifest with one more entry for each of `variants`, except variant 0.

    Args:
        parts: results of all packing tasks.
        variants: numbers of the variants that these tasks packed.
    """
    sums = [_VariantSum(options, parts, number) for number in variants if number]
    added = tuple(VariantEntry.of(each.totals, each.shards) for each in sums)
    sampled = manifest.sampled_clusters
    if sampled is not None:
        sampled = replace(
            sampled,
            members_shown=_continued(sampled.members_shown, [each.new_members for each in sums]),
            residues_shown=_continued(sampled.residues_shown, [each.new_residues for each in sums]),
        )
    return replace(
        manifest,
        slots=max(manifest.slots, *(_slots(each.totals) for each in sums), 0),
        more_variants=(*manifest.more_variants, *added),
        sampled_clusters=sampled,
    )


def _continued(sums: tuple[int, ...], added: Sequence[int]) -> tuple[int, ...]:
    """Return a list of running sums, extended by the numbers in `added`."""
    return (*sums[:-1], *itertools.accumulate((sums[-1], *added)))


class _VariantSum:
    """Shards and totals of a variant, summed over the results of all packing tasks."""

    def __init__(self, options: DatasetOptions, parts: Sequence[PackResult], variant: int) -> None:
        every = [packed for part in parts for packed in part.packed if packed.variant == variant]
        self.statistics = {
            split: SplitStatistics(capacity=options.capacity, longest=options.longest_span)
            for split in SPLITS
        }
        counts = np.zeros(256, dtype=np.int64)
        for packed in every:
            counts += np.array(packed.token_counts, dtype=np.int64)
            for split in SPLITS:
                self.statistics[split].add(packed.statistics[split])
        self.token_counts: list[int] = counts.tolist()
        self.new_members = sum(packed.new_members for packed in every)
        self.new_residues = sum(packed.new_residues for packed in every)
        self.totals = {split: self.statistics[split].totals() for split in SPLITS}
        self.shards = {
            split: tuple(entry for packed in every for entry in packed.shards[split])
            for split in SPLITS
        }


def _slots(totals: Mapping[str, SplitTotals]) -> int:
    """Return the number of slots: the limit of the number of sequences and tail pieces, together,
    in a bucket."""
    return slots_for(max(total.pieces_max for total in totals.values()))


def refuse_empty(manifest: Manifest) -> None:
    """Refuse a dataset without records.

    Raises:
        NothingKeptError: no record was kept.
    """
    by_status = manifest.records_by_status
    if not by_status[Status.KEPT]:
        counts = ", ".join(
            f"{count:,} {status.replace('_', ' ')}" for status, count in by_status.items() if count
        )
        raise NothingKeptError(
            f"no record was kept ({counts}), and nothing was committed; "
            "see --where, --exclude, --min-residues, --long and --on-invalid"
        )
