"""Measure leaks: find the sequences and the clusters that several splits have in common.

A value is a sequence's hash or a cluster's key. The values of all splits except the largest are
collected, and are then looked up in the largest split. This needs memory for the smaller splits
only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final, Literal

import polars as pl

from pipeline.report.model_leaks import SharedValues

_COLUMNS: Final[dict[Literal["sequences", "clusters"], str]] = {
    "sequences": "hash",
    "clusters": "cluster",
}
"""Column of records/ with the compared values."""


def shared_values(
    rows: pl.LazyFrame, splits: Sequence[str], *, clusters: bool
) -> tuple[SharedValues, ...]:
    """Count the sequences and, on request, the clusters that each pair of splits shares.

    Args:
        splits: names of the splits, the largest split first.
        clusters: True to count clusters too.
    """
    sequences = _shared(rows, splits, "sequences")
    return (*sequences, *(_shared(rows, splits, "clusters") if clusters else ()))


def _shared(
    rows: pl.LazyFrame, splits: Sequence[str], of: Literal["sequences", "clusters"]
) -> list[SharedValues]:
    largest, *others = splits
    # only kept records have a split
    values = rows.select(pl.col(_COLUMNS[of]).alias("value"), "split")
    small = _counted(values.filter(pl.col("split") != largest), "value", "split")
    counts = {split: small.filter(pl.col("split") == split).drop("split") for split in others}
    wanted = small.select("value").unique().lazy()
    counts[largest] = _counted(
        values.filter(pl.col("split") == largest).join(wanted, on="value", how="semi"), "value"
    )
    found = []
    for pair in combinations(splits, 2):
        both = counts[pair[0]].join(counts[pair[1]], on="value", suffix="_of_second")
        records = int(both["records"].sum()), int(both["records_of_second"].sum())
        found.append(SharedValues(of=of, splits=pair, shared=both.height, records=records))
    return found


def _counted(rows: pl.LazyFrame, *columns: str) -> pl.DataFrame:
    """Return the number of rows for each combination of values of some columns."""
    counts = (
        rows.drop_nulls("value").group_by(columns).agg(pl.len().cast(pl.Int64).alias("records"))
    )
    return counts.collect(engine="streaming")
