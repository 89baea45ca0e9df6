"""What records/ of a dataset say, read by polars a piece at a time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.report.gather.assemble import Facts
from pipeline.report.gather.lengths import Counted
from pipeline.report.gather.most_repeated import most_repeated
from pipeline.report.model import TOP, DuplicateFlow, RecordNote
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.records import Status

_FILES_TOGETHER: Final = 32
"""records/ files whose duplicates are counted at once: some 4 million rows."""
_NOTE: Final = ("ordinal", "id", "source", "residues", "status")


def facts_of(url: str, manifest: Manifest, paths: list[Path]) -> Facts:
    """What records/ say.

    Raises:
        DatasetError: they contradict the manifest.
    """
    rows = pl.scan_parquet(paths)
    unknown = pl.col("unknown")
    fates, lengths, top = pl.collect_all(
        [
            rows.group_by("source", "status").agg(
                pl.len().cast(pl.Int64).alias("records"),
                pl.col("residues").sum(),
                unknown.sum(),
                (unknown > 0).sum().alias("with_unknown"),
            ),
            rows.group_by(pl.col("status") == Status.KEPT.value, "residues").agg(
                pl.len().cast(pl.Int64).alias("records")
            ),
            rows.select(_NOTE).sort("residues", "ordinal", descending=[True, False]).head(TOP),
        ],
        engine="streaming",
    )
    found = {
        status: int(fates.filter(pl.col("status") == status.value)["records"].sum())
        for status in Status
    }
    if (
        found != dict(manifest.records_by_status)
        or int(fates["residues"].sum()) != manifest.residues_in
    ):
        raise DatasetError(
            f"{url}: records/ hold other records than the manifest counts: damaged, build it again"
        )
    times, duplicates = _duplicates(url, manifest, paths)
    return Facts(
        fates={
            (row["source"], row["status"]): (row["records"], row["residues"])
            for row in fates.iter_rows(named=True)
        },
        all_in=_counted(lengths),
        kept=_counted(lengths.filter(pl.col("status"))),
        unknown_records=int(fates["with_unknown"].sum()),
        unknown_residues=int(fates["unknown"].sum()),
        longest=tuple(_note(row, times) for row in top.iter_rows(named=True)),
        repeated=_repeated(rows, times),
        duplicates=duplicates,
    )


def _counted(lengths: pl.DataFrame) -> Counted:
    return Counted.of(lengths["residues"].to_numpy(), lengths["records"].to_numpy())


def _repeated(rows: pl.LazyFrame, times: NDArray[np.uint32]) -> tuple[RecordNote, ...]:
    """The records with the most duplicates."""
    most = most_repeated(times)
    if not most:
        return ()
    found = rows.select(_NOTE).filter(pl.col("ordinal").is_in(most)).collect(engine="streaming")
    by_ordinal = {row["ordinal"]: _note(row, times) for row in found.iter_rows(named=True)}
    return tuple(by_ordinal[ordinal] for ordinal in most)


def _note(row: dict[str, Any], times: NDArray[np.uint32]) -> RecordNote:
    return RecordNote(**row, times=1 + int(times[row["ordinal"]]) if times.size else 1)


def _duplicates(
    url: str, manifest: Manifest, paths: list[Path]
) -> tuple[NDArray[np.uint32], tuple[DuplicateFlow, ...]]:
    """How many duplicates each record has, uint32[records] by ordinal ([0] where there are none at all), and which input's records are copies of which.

    A few files at a time, for a table of all originals would take more memory than everything else. An input's ordinals are one run, so the
    original's input follows from its ordinal.

    Raises:
        DatasetError: a duplicate of a record that is not there.
    """
    records = (
        sum(manifest.records_by_status.values())
        if manifest.records_by_status[Status.DUPLICATE]
        else 0
    )
    times = np.zeros(records, dtype=np.uint32)
    names = [entry.name for entry in manifest.inputs]
    ends = np.cumsum([entry.records for entry in manifest.inputs])
    pairs: Counter[tuple[str, int]] = Counter()
    for at in range(0, len(paths) if records else 0, _FILES_TOGETHER):
        rows = pl.scan_parquet(paths[at : at + _FILES_TOGETHER]).filter(
            pl.col("duplicate_of").is_not_null()
        )
        copies = (
            rows.group_by(pl.col("source").cast(pl.String), "duplicate_of")
            .agg(pl.len().alias("records"))
            .collect(engine="streaming")
        )
        original = copies["duplicate_of"].to_numpy()
        if original.size and not 0 <= original.min() <= original.max() < records:
            raise DatasetError(
                f"{url}: records/ name a duplicate of record {original.max()}, there are {records:,}: damaged, build it again"
            )
        np.add.at(times, original, copies["records"].to_numpy())
        of = (
            copies.select(
                "source",
                pl.Series("original", np.searchsorted(ends, original, side="right")),
                "records",
            )
            .group_by("source", "original")
            .sum()
        )
        pairs.update({(source, i): count for source, i, count in of.iter_rows()})
    place = {name: i for i, name in enumerate(names)}
    found = sorted(pairs, key=lambda pair: (place[pair[0]], pair[1]))
    return times, tuple(
        DuplicateFlow(source=source, original=names[i], records=pairs[source, i])
        for source, i in found
    )
