"""Totals of a dataset's latest generation, for metrics and the status page."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.manifest import Manifest


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetTotals:
    """Totals of a generation, including the records of all earlier generations.

    records: number of records by status
    buckets: number of buckets by split
    """

    generation: int
    digest: str
    inputs: int
    input_bytes: int
    records: dict[str, int]
    residues_kept: int
    buckets: dict[str, int]


def dataset_totals(manifest: Manifest) -> DatasetTotals:
    """Return the totals of a manifest."""
    return DatasetTotals(
        generation=manifest.generation,
        digest=manifest.digest,
        inputs=len(manifest.inputs),
        input_bytes=sum(entry.bytes for entry in manifest.inputs),
        records={str(status): count for status, count in manifest.records_by_status.items()},
        residues_kept=manifest.residues_kept,
        buckets={split: totals.buckets for split, totals in manifest.splits.items()},
    )
