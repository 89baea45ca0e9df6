"""Merge the manifest of a generation with the manifest of the records that a build appends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np

from schemas.manifest import Manifest
from schemas.manifest_entries import (
    GenerationEntry,
    Histogram,
    Shards,
    SplitTotals,
    VariantEntry,
)

_MAXIMA = ("cost_max", "seqs_max", "pieces_max")
"""Fields of SplitTotals that are maxima. All others are sums."""


def merged(parent: Manifest, added: Manifest) -> Manifest:
    """Return the manifest of the next generation.

    Args:
        parent: manifest of the generation before.
        added: manifest of the new records only, with the same options.
    """
    return replace(
        added,
        generation=parent.generation + 1,
        parent=parent.digest,
        history=(*parent.history, entry_of(parent)),
        slots=max(parent.slots, added.slots),
        inputs=(*parent.inputs, *added.inputs),
        metadata_records=parent.metadata_records + added.metadata_records,
        shards=_shards(parent.shards, added.shards),
        records=(*parent.records, *added.records),
        retired=parent.retired,
        records_by_status=_sums(parent.records_by_status, added.records_by_status),
        cropped_copies=parent.cropped_copies + added.cropped_copies,
        residues_in=parent.residues_in + added.residues_in,
        residues_kept=parent.residues_kept + added.residues_kept,
        residue_counts=_sums(parent.residue_counts, added.residue_counts),
        splits=_splits(parent.splits, added.splits),
        histograms={
            split: _histograms(histograms, added.histograms[split])
            for split, histograms in parent.histograms.items()
        },
        more_variants=tuple(
            VariantEntry.of(
                _splits(parent.splits_of(number), added.splits_of(number)),
                _shards(parent.shards_of(number), added.shards_of(number)),
            )
            for number in range(1, parent.variants)
        ),
    )


def entry_of(manifest: Manifest) -> GenerationEntry:
    """Return the entry of a generation in the history of the next one."""
    return GenerationEntry(
        digest=manifest.digest,
        build=manifest.build,
        inputs=len(manifest.inputs),
        records=sum(manifest.records_by_status.values()),
        kept=manifest.records_by_status["kept"],
        buckets=sum(totals.buckets for totals in manifest.splits.values()),
    )


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _shards(one: Shards, other: Shards) -> Shards:
    return {split: (*one[split], *other[split]) for split in one}


def _splits(
    one: Mapping[str, SplitTotals], other: Mapping[str, SplitTotals]
) -> dict[str, SplitTotals]:
    return {split: _added(totals, other[split]) for split, totals in one.items()}


def _added(one: SplitTotals, other: SplitTotals) -> SplitTotals:
    return SplitTotals(
        **{
            name: (max if name in _MAXIMA else int.__add__)(
                getattr(one, name), getattr(other, name)
            )
            for name in (field.name for field in fields(SplitTotals))
        }
    )


def _histograms(
    one: Mapping[str, Histogram], other: Mapping[str, Histogram]
) -> dict[str, Histogram]:
    """Add histograms with the same bins. A split without buckets has no histograms."""
    return {
        name: _sum(one[name], other[name])
        if name in one and name in other
        else {**one, **other}[name]
        for name in {**one, **other}
    }


def _sum(one: Histogram, other: Histogram) -> Histogram:
    first = min(one.first, other.first)
    begins = [(each.first - first) // one.width for each in (one, other)]
    counts = np.zeros(
        max(begin + len(each.counts) for begin, each in zip(begins, (one, other), strict=True)),
        dtype=np.int64,
    )
    for begin, each in zip(begins, (one, other), strict=True):
        counts[begin : begin + len(each.counts)] += np.array(each.counts, dtype=np.int64)
    return Histogram(first=first, width=one.width, counts=tuple(counts.tolist()))
