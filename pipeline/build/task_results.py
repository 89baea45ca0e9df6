"""Results of tasks, as they return from a worker and as their markers keep them.

Every field is checked by type, range and pattern when a marker is read (msgspec).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from pipeline.build.split_statistics import SplitStatistics
from schemas.manifest_entries import RecordsEntry, ShardEntry
from schemas.records import Status
from schemas.untrusted_json import Count, Hash, WorkName

_TokenCounts = Annotated[tuple[Count, ...], Meta(min_length=256, max_length=256)]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkFile:
    """A spill or a rest, `name` in the work folder."""

    name: WorkName
    bytes: Count
    xxh3_128: Hash


@dataclass(frozen=True, kw_only=True, slots=True)
class MapResult:
    """What a map task read. pieces: xxh3_128 of each piece of its range; none for tables, which hash tasks read."""

    spill: WorkFile
    records: Count
    residues: Count
    unknown: Count
    pieces: tuple[Hash, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class HashResult:
    """xxh3_128 of each piece of a range of an input."""

    pieces: tuple[Hash, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackResult:
    """What a task wrote that packs sequences: shards and statistics of each split, records/, and what filled no bucket.

    rest: None where part-filled buckets were written instead.
    token_counts: how often each id occurs in the shards.
    """

    rest: WorkFile | None
    records: RecordsEntry
    shards: dict[str, tuple[ShardEntry, ...]]
    statistics: dict[str, SplitStatistics]
    token_counts: _TokenCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class ReduceResult(PackResult):
    """A partition, packed: also how many of its records became what. residues_in: of all of them."""

    status: dict[Status, Count] = field(default_factory=dict)
    residues_in: Count = 0
    cropped_copies: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyResult:
    """One line for each thing that is wrong with some files."""

    problems: tuple[str, ...]
