"""Count the records that a build left out because of `--exclude`."""

from __future__ import annotations

import polars as pl

from pipeline.report.model_leaks import Exclusion
from schemas.records import EXCLUSION_KINDS, Status


def exclusions(rows: pl.LazyFrame) -> tuple[Exclusion, ...]:
    """Count the excluded rows of records/ by file and by kind.

    The counts are sorted by the name of the file, then in the order of EXCLUSION_KINDS.
    """
    found = (
        rows.filter(pl.col("status") == Status.EXCLUDED.value)
        .group_by(pl.col("exclusion", "match_file").cast(pl.String))
        .agg(pl.len().cast(pl.Int64).alias("records"), pl.col("residues").sum())
        .collect(engine="streaming")
    )
    counts = (
        Exclusion(kind=kind, file=file, records=records, residues=residues)
        for kind, file, records, residues in found.iter_rows()
    )
    return tuple(sorted(counts, key=lambda one: (one.file, EXCLUSION_KINDS.index(one.kind))))
