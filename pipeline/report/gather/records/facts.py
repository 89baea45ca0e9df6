"""Count a dataset's records. polars reads the files of records/, in parts.

An ordinal is a record's position in the input order.
"""

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
"""Number of files of records/ whose duplicates are counted at a time. Together, these files have
about 4 million rows."""
_NOTE: Final = ("ordinal", "id", "source", "residues", "status")


def facts_of(url: str, manifest: Manifest, paths: list[Path]) -> Facts:
    """Count the records of a dataset.

    Raises:
        DatasetError: records/ contradicts the manifest.
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
            # a kept record that variant 0 does not draw (--sample-clusters) has no shard
            rows.group_by(pl.col("shard").is_not_null().alias("placed"), "residues").agg(
                pl.len().cast(pl.Int64).alias("records")
            ),
            rows.select(_NOTE).sort("residues", "ordinal", descending=[True, False]).head(TOP),
        ],
        engine="streaming",
    )
    _check_counts(url, manifest, fates)
    times, duplicates = _duplicates(url, manifest, paths)
    return Facts(
        fates={
            (row["source"], row["status"]): (row["records"], row["residues"])
            for row in fates.iter_rows(named=True)
        },
        all_in=_counted(lengths),
        kept=_counted(lengths.filter(pl.col("placed"))),
        unknown_records=int(fates["with_unknown"].sum()),
        unknown_residues=int(fates["unknown"].sum()),
        longest=tuple(_note(row, times) for row in top.iter_rows(named=True)),
        repeated=_repeated(rows, times),
        duplicates=duplicates,
    )


def _check_counts(url: str, manifest: Manifest, fates: pl.DataFrame) -> None:
    by_status = {
        status: int(fates.filter(pl.col("status") == status.value)["records"].sum())
        for status in Status
    }
    residues = int(fates["residues"].sum())
    if by_status != dict(manifest.records_by_status) or residues != manifest.residues_in:
        raise DatasetError(
            f"{url}: the numbers of records and residues in records/ differ from the manifest: "
            "the dataset is damaged; build it again"
        )


def _counted(lengths: pl.DataFrame) -> Counted:
    return Counted.of(lengths["residues"].to_numpy(), lengths["records"].to_numpy())


def _repeated(rows: pl.LazyFrame, times: NDArray[np.uint32]) -> tuple[RecordNote, ...]:
    """Return the records with the most duplicates."""
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
    """Count the duplicates of each record, and the duplicates between each pair of inputs.

    Only a few files are counted at a time. A table of the duplicates of all files would need more
    memory than all other steps of the report.

    Returns:
        1. uint32[records], number of duplicates of each record, by the record's ordinal. uint32[0]
           if the dataset has no duplicates.
        2. A DuplicateFlow for each pair of inputs, in input order.
    Raises:
        DatasetError: a duplicate names a record that does not exist.
    """
    if not manifest.records_by_status[Status.DUPLICATE]:
        return np.zeros(0, dtype=np.uint32), ()
    times = np.zeros(sum(manifest.records_by_status.values()), dtype=np.uint32)
    # the ordinals of an input's records are consecutive, so a record's ordinal determines its input
    ends = np.cumsum([entry.records for entry in manifest.inputs])
    pairs: Counter[tuple[str, int]] = Counter()
    for at in range(0, len(paths), _FILES_TOGETHER):
        copies = _copies(paths[at : at + _FILES_TOGETHER])
        original = copies["duplicate_of"].to_numpy()
        if original.size and not 0 <= original.min() <= original.max() < times.size:
            wrong = original.max() if original.max() >= times.size else original.min()
            raise DatasetError(
                f"{url}: records/ has a duplicate of record {wrong}, expected 0 to "
                f"{times.size - 1}: the dataset is damaged; build it again"
            )
        np.add.at(times, original, copies["records"].to_numpy())
        of_input = pl.Series("original", np.searchsorted(ends, original, side="right"))
        sums = copies.select("source", of_input, "records").group_by("source", "original").sum()
        pairs.update({(source, i): count for source, i, count in sums.iter_rows()})
    names = [entry.name for entry in manifest.inputs]
    place = {name: i for i, name in enumerate(names)}
    found = sorted(pairs, key=lambda pair: (place[pair[0]], pair[1]))
    return times, tuple(
        DuplicateFlow(source=source, original=names[i], records=pairs[source, i])
        for source, i in found
    )


def _copies(paths: list[Path]) -> pl.DataFrame:
    """Count, in some files of records/, the duplicates that each record has in each input."""
    rows = pl.scan_parquet(paths).filter(pl.col("duplicate_of").is_not_null())
    by_original = rows.group_by(pl.col("source").cast(pl.String), "duplicate_of")
    return by_original.agg(pl.len().alias("records")).collect(engine="streaming")
