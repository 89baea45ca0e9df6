"""Look up the sequences of files, such as test sets, among the rows of records/.

The hash (xxh3_128) of all residues of an entry is compared with the hashes in records/. Memory
depends on the number of entries, and not on the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from pipeline.report.model_leaks import FileOverlap
from schemas.records import Status
from schemas.shard import SPLITS


@dataclass(frozen=True, slots=True)
class Entries:
    """The sequences of one file.

    name: path or URL of the file, as given on the command line
    hashes: a column `hash` of distinct hashes, and a column `entries` with the number of the file's
      sequences that have each hash
    """

    name: str
    hashes: pl.DataFrame


def overlaps(files: Sequence[Entries], rows: pl.LazyFrame) -> tuple[FileOverlap, ...]:
    """Count the entries of each file that are in the rows of records/."""
    if not files:
        return ()
    wanted = pl.concat(file.hashes.select("hash") for file in files).unique()
    found = (
        rows.select("hash", pl.col("status", "split").cast(pl.String))
        .join(wanted.lazy(), on="hash", how="semi")
        .unique()
        .collect(engine="streaming")
    )
    return tuple(_overlap(file, found) for file in files)


def _overlap(file: Entries, found: pl.DataFrame) -> FileOverlap:
    """Count the entries of one file.

    found: distinct combinations of hash, status and split among the rows of records/ that have the
      hash of an entry of some file
    """

    def among(rows: pl.DataFrame) -> int:
        same = file.hashes.join(rows, on="hash", how="semi")
        return int(same["entries"].sum())

    kept = found.filter(pl.col("status") == Status.KEPT.value)
    return FileOverlap(
        name=file.name,
        entries=int(file.hashes["entries"].sum()),
        in_splits={split: among(kept.filter(pl.col("split") == split)) for split in SPLITS},
        in_records=among(found),
        by_status={
            status.value: among(found.filter(pl.col("status") == status.value)) for status in Status
        },
    )
