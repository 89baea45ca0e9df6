"""Count records by values from their headers: database, taxon, protein existence, fragment.

A taxon is a taxid. Records that state an organism but no taxid, such as those of NCBI, are counted
by the organism's name. The count needs memory for each taxon, but not for each record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

from pipeline.report.model_headers import TOP_TAXA, Counts, Group, HeaderCounts, Taxon
from schemas.records import Status

_GROUPS: Final = ("database", "pe", "fragment")
_COUNTS: Final = tuple(Counts.__dataclass_fields__)


def header_counts(rows: pl.LazyFrame) -> HeaderCounts:
    """Count the rows of records/ by values from their headers."""
    taxid, organism = pl.col("taxid"), pl.col("organism")
    groups, by_taxid, by_name = pl.collect_all(
        [
            rows.group_by(_GROUPS).agg(_counts()),
            rows.group_by("taxid").agg(_counts()),
            rows.filter(taxid.is_null() & organism.is_not_null())
            .group_by("organism")
            .agg(_counts()),
        ],
        engine="streaming",
    )
    stated = by_taxid.filter(taxid.is_not_null())
    taxa = pl.concat(
        [
            stated.with_columns(pl.lit(None, pl.String).alias("organism")),
            by_name.with_columns(pl.lit(None, pl.Int32).alias("taxid")),
        ],
        how="diagonal",
    )
    top = taxa.sort(
        *("kept", "records", "taxid", "organism"),
        descending=[True, True, False, False],
        nulls_last=True,
    ).head(TOP_TAXA)
    names = _names(rows, top["taxid"].drop_nulls().to_list())
    without = by_taxid.filter(taxid.is_null())
    return HeaderCounts(
        databases=tuple(sorted(_groups(groups, "database"), key=lambda group: -group.kept)),
        existence=tuple(_groups(groups, "pe")),
        fragments=tuple(reversed(_groups(groups, "fragment"))),
        taxa=tuple(
            Taxon(**{**row, "organism": row["organism"] or names.get(row["taxid"])})
            for row in top.iter_rows(named=True)
        ),
        distinct_taxa=taxa.height,
        without_taxon=Counts(
            **{name: int(without[name].sum()) - int(by_name[name].sum()) for name in _COUNTS}
        ),
    )


def _counts() -> list[pl.Expr]:
    """Return an expression for each field of `Counts`."""
    kept, residues = pl.col("status") == Status.KEPT.value, pl.col("residues")
    return [
        pl.len().cast(pl.Int64).alias("records"),
        residues.sum(),
        kept.sum().cast(pl.Int64).alias("kept"),
        (residues * kept).sum().alias("residues_kept"),
    ]


def _groups(counted: pl.DataFrame, column: str) -> list[Group]:
    """Return a group for each value of a column, in ascending order. None is last."""
    sums = counted.group_by(column).agg(pl.col(_COUNTS).sum())
    found = sums.sort(pl.col(column).cast(pl.String), nulls_last=True)
    return [
        Group(value=row[column], **{name: row[name] for name in _COUNTS})
        for row in found.iter_rows(named=True)
    ]


def _names(rows: pl.LazyFrame, taxids: Iterable[int]) -> dict[int, str]:
    """Return, for each taxid, the organism name that most of its records give."""
    found = (
        rows.filter(pl.col("taxid").is_in(list(taxids)) & pl.col("organism").is_not_null())
        .group_by("taxid", "organism")
        .agg(pl.len().alias("records"))
        .sort("records", "organism", descending=[True, False])
        .collect(engine="streaming")
    )
    names: dict[int, str] = {}
    for taxid, organism in found.select("taxid", "organism").iter_rows():
        names.setdefault(taxid, organism)
    return names
