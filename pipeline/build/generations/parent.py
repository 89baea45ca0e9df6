"""Facts about the generation that a build appends to."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.build.hash_index.index_runs import IndexRun


@dataclass(frozen=True, kw_only=True, slots=True)
class Parent:
    """The generation that a build appends to, as plain data for tasks.

    digest: digest of the manifest
    records: number of records, kept or not; the first new record has this ordinal (its number among
        all input records, counted from 0)
    index: runs of the hash index; empty with --dedup none
    retired: digest of the records that this append retires; empty if there are none
    """

    digest: str
    records: int
    index: tuple[IndexRun, ...] = ()
    retired: str = ""
