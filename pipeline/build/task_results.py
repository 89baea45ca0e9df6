"""Results of tasks. Each task's worker returns its result and stores it in a marker (a JSON file).

When a marker is read, msgspec checks type, range and pattern of every field. A variant of a dataset
is a pass over the kept records with its own seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from pipeline.build.split_statistics import SplitStatistics
from schemas.manifest_entries import FileOption, NamedFileEntry, RecordsEntry, ShardEntry
from schemas.records import ColumnType, Status
from schemas.untrusted_json import ColumnName, Count, Hash, Name, WorkName

_TokenCounts = Annotated[tuple[Count, ...], Meta(min_length=256, max_length=256)]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkFile:
    """Name, size and hash of a work file. A work file is a file that one task writes for later
    tasks.

    Examples are a spill (a map task's records), a link file (the cluster of each record), and a
    rest (sequences that did not fill a bucket).
    """

    name: WorkName
    bytes: Count
    xxh3_128: Hash


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedFile:
    """A file that an option names, converted into a work file.

    option, name, bytes: see `NamedFile`
    file: the work file, an Arrow file
    rows: number of entries, such as excluded sequences or cluster members
    xxh3_128: hash of the sorted content; it does not depend on the order of the entries
    columns: type of each column that a file of --metadata adds to records/
    is_id_list: True if the file is a list of ids that --exclude names
    """

    option: FileOption
    name: Name
    bytes: Count
    file: WorkFile
    rows: Count
    xxh3_128: Hash
    columns: dict[ColumnName, ColumnType] = field(default_factory=dict)
    is_id_list: bool = False

    @property
    def entry(self) -> NamedFileEntry:
        """Entry of the manifest."""
        return NamedFileEntry(
            option=self.option,
            name=self.name,
            bytes=self.bytes,
            rows=self.rows,
            xxh3_128=self.xxh3_128,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MapResult:
    """Result of a map task.

    pieces: xxh3_128 of each piece (`Source.piece` bytes) of the task's range; empty for tables
    columns_without_ids: if the input is a table without a column of ids, the names of its columns;
        empty otherwise
    listed: for each list of ids that --exclude names, the indices (see `ListedNames.match`) of the
        ids that occur among the task's records
    stated: columns of --where for which at least one of the task's records has a value
    """

    spill: WorkFile
    records: Count
    residues: Count
    unknown: Count
    pieces: tuple[Hash, ...]
    columns_without_ids: tuple[str, ...] = ()
    listed: tuple[tuple[Count, ...], ...] = ()
    stated: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class HashResult:
    """Result of a hash task: xxh3_128 of each piece (`Source.piece` bytes) of the range."""

    pieces: tuple[Hash, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkResult:
    """Result of a link task.

    links: link file, which has the cluster of each record
    pair_bytes: size of the first part of this file: pairs of clusters to join
    piece_bytes: size of the second part: the kept records' first pieces and clusters; 0 in a build
        that does not append
    records: number of records of the partition, kept or not
    found: number of these records that are in the table of clusters
    examples: ids of the first records that are not in the table; empty if MMseqs2 made the table
    """

    links: WorkFile
    pair_bytes: Count
    piece_bytes: Count = 0
    records: Count
    found: Count
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawResult:
    """Result of a draw task: the file of the members, and the number of members."""

    members: WorkFile
    count: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedVariant:
    """The part of a variant that one task packed. The keys of `shards` and `statistics` are splits.

    rest: file of the sequences that did not fill a bucket; None if the task wrote no such file
    token_counts: number of occurrences of each token id in the shards, without padding. Tokens are
        counted only for variant 0.
    new_members: number of cluster members that are in this variant, but in no earlier one; 0
        without --sample-clusters
    new_residues: number of residues of kept records that are in this variant, but in no earlier
        one; 0 without --sample-clusters
    """

    variant: Count = 0
    rest: WorkFile | None
    shards: dict[str, tuple[ShardEntry, ...]]
    statistics: dict[str, SplitStatistics]
    token_counts: _TokenCounts
    new_members: Count = 0
    new_residues: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class PackResult:
    """Result of a task that packs sequences.

    records: records/ file; None if the task did not pack variant 0
    metadata_records: number of records, kept or not, with a row in the table of --metadata
    """

    packed: tuple[PackedVariant, ...]
    records: RecordsEntry | None
    metadata_records: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ReduceResult(PackResult):
    """Result of a reduce task.

    residues_in: number of residues of all records of the partition, kept or not
    residues: number of residues of the records of each status
    cropped_records: number of records of variant 0 that lose residues by cropping
    cropped_copies: number of kept records that equal an earlier record after truncation
    clusters: number of clusters whose first member is in the partition; 0 without --sample-clusters
    members: number of cluster members in the partition; 0 without --sample-clusters
    not_drawn: number of kept records that are not in variant 0 because of --sample-clusters
    residues_not_drawn: number of residues of these records
    excluded_by_kind: number of excluded records with each kind of match (EXCLUSION_KINDS)
    excluded_by_file: number of excluded records whose match is in each file (`exclusion_files`)
    """

    status: dict[Status, Count] = field(default_factory=dict)
    residues_in: Count = 0
    cropped_copies: Count = 0
    residues: dict[Status, Count] = field(default_factory=dict)
    cropped_records: Count = 0
    clusters: Count = 0
    members: Count = 0
    not_drawn: Count = 0
    residues_not_drawn: Count = 0
    excluded_by_kind: dict[str, Count] = field(default_factory=dict)
    excluded_by_file: tuple[Count, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyResult:
    """Result of a verify task: one line for each problem."""

    problems: tuple[str, ...]
