"""Make the report of a dataset from its manifest and records/. Shards are not read.

The report of half a million records takes about 0.2 s and 0.2 GB of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.report.gather.assemble import PackedSplit, assemble, settings_of
from pipeline.report.gather.compare import Side
from pipeline.report.gather.lengths import sequences_of
from pipeline.report.gather.records.coverage import coverage
from pipeline.report.gather.records.exclusions import exclusions
from pipeline.report.gather.records.facts import facts_of
from pipeline.report.gather.records.header_counts import header_counts
from pipeline.report.gather.records.overlaps import Entries, overlaps
from pipeline.report.gather.records.shared_values import shared_values
from pipeline.report.gather.records.verified_files import records_files
from pipeline.report.model import Report
from pipeline.storage.read_manifest import read_manifest
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.records import Status
from schemas.text.generation import LATEST, Generation


def dataset_report(
    url: str, generation: Generation = LATEST, against: Sequence[Entries] = ()
) -> Report:
    """Return the report of the dataset at a path or URL.

    Args:
        against: sequences of files to look up in the dataset.
    Raises:
        ManifestError: the manifest is missing or invalid.
        DatasetError: the dataset is incomplete or damaged, or the store cannot be reached.
    """
    manifest = read_manifest(url, generation)
    with records_files(url, manifest) as paths:
        report = _report(url, manifest, paths)
        return replace(report, against=overlaps(against, pl.scan_parquet(paths)))


def dataset_side(url: str, generation: Generation = LATEST) -> Side:
    """Return a dataset's report, and the hash and length of every record, for a comparison.

    Raises:
        ManifestError, DatasetError: see `dataset_report`.
    """
    # imported here, because only a comparison needs pyarrow.parquet and build code
    import pyarrow.parquet as pq

    from pipeline.build.reduce_stage.spilled_records import hash_column

    manifest = read_manifest(url, generation)
    with records_files(url, manifest) as paths:
        report = _report(url, manifest, paths)
        tables = [pq.read_table(path, columns=["hash", "residues"]) for path in paths]
    return Side(
        report,
        np.concatenate([hash_column(table.column("hash")) for table in tables]),
        np.concatenate([table.column("residues").to_numpy() for table in tables]),
    )


def _report(url: str, manifest: Manifest, paths: list[Path]) -> Report:
    """Return the report that the manifest and records/ determine.

    Raises:
        DatasetError: the manifest and records/ contradict each other.
    """
    facts = facts_of(url, manifest, paths)
    settings = settings_of(manifest.vocabulary, manifest.options)
    sequences = sequences_of(facts.kept, most=manifest.longest_piece, long=settings.long)
    counted = sum(split.sequences for split in manifest.splits.values())
    tokens = sum(split.tokens for split in manifest.splits.values())
    if (sequences.number, sequences.total) != (counted, tokens):
        raise DatasetError(
            f"{url}: the records in records/ have {sequences.number:,} sequences and "
            f"{sequences.total:,} tokens, but the manifest says {counted:,} sequences and "
            f"{tokens:,} tokens: the dataset is damaged; build it again"
        )
    report = assemble(
        facts,
        {name: _packed(manifest, name) for name in manifest.splits},
        sequences,
        kind="dataset",
        name=url,
        settings=settings,
        limits=manifest,
        inputs=[(entry.name, entry.bytes) for entry in manifest.inputs],
        letters=manifest.residue_counts,
        cropped_copies=manifest.cropped_copies,
    )
    rows = pl.scan_parquet(paths)
    clusters = any(entry.option == "clusters" for entry in manifest.named_files)
    by_size = sorted(manifest.splits, key=lambda split: -manifest.splits[split].sequences)
    return replace(
        report,
        headers=header_counts(rows),
        exclusions=exclusions(rows) if manifest.records_by_status[Status.EXCLUDED] else (),
        leaks=shared_values(rows, by_size, clusters=clusters),
        manifest_digest=manifest.digest,
        build=manifest.build,
        parent=manifest.parent,
        generation=manifest.generation,
        retired=sum(entry.rows for entry in manifest.retired),
        slots=manifest.slots,
        source_release=manifest.source_release,
        license=manifest.license,
        coverage=coverage(manifest, paths),
    )


def _packed(manifest: Manifest, split: str) -> PackedSplit:
    shards = manifest.shards[split]
    return PackedSplit(
        totals=manifest.splits[split],
        histograms=manifest.histograms.get(split, {}),
        shards=len(shards),
        bytes=sum(entry.bytes for entry in shards),
    )
