"""Entries of a manifest: shards, records/ files, inputs, files that options name, splits, and
variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta

from schemas.errors import ManifestError
from schemas.untrusted_json import BuildName, Count, FileName, Hash, LargeCount, Name, decoded


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardEntry:
    """Entry of a shard. `name` is relative to the dataset's folder. `xxh3_128` is the hash of the
    file, in hexadecimal."""

    name: FileName
    bytes: Count
    buckets: Count
    tokens: Count
    xxh3_128: Hash


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordsEntry:
    """Entry of a records/ file."""

    name: FileName
    bytes: Count
    rows: Count
    xxh3_128: Hash


@dataclass(frozen=True, kw_only=True, slots=True)
class InputEntry:
    """Entry of an input.

    `name` is relative to the inputs' common folder. `xxh3_128` is the hash of the stored bytes,
    which may be compressed. For an input above 16 MiB, it is the hash of the digests of the input's
    16 MiB pieces.
    """

    name: Name
    bytes: Count
    xxh3_128: Hash
    records: Count


FileOption = Literal["exclude", "clusters", "sample-clusters", "metadata"]
"""Option that names a file, without the leading `--`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedFileEntry:
    """Entry of a file that an option names.

    `name` is the file's name without its folder. If the option's value begins with `mmseqs:`, so
    does `name`. `rows` is the number of entries, such as excluded sequences. `xxh3_128` is the hash
    of the sorted content, which does not depend on the order of the entries.
    """

    option: FileOption
    name: Name
    bytes: Count
    rows: Count
    xxh3_128: Hash


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    """Counts of values in bins of equal width.

    `counts[i]` counts the values v with first + i·width ≤ v < first + (i+1)·width.
    """

    first: Count
    width: Annotated[int, Meta(ge=1, le=1 << 62)]
    counts: tuple[Count, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitTotals:
    """Totals of a split. Sums are exact integers, so they do not depend on the order of summing.

    cost_sum: sum of the attention costs of all buckets; a bucket's cost is its Σ length²
    cost_square_sum: sum of the squares of the costs of all buckets
    cost_max: largest cost of a bucket
    seqs_max: largest number of sequences in a bucket
    """

    buckets: Count
    sequences: Count
    tokens: Count
    cost_sum: LargeCount
    cost_square_sum: LargeCount
    cost_max: Count
    seqs_max: Count
    pieces_max: Count
    """Largest number of pieces (sequences and tail pieces together) in a bucket. A tail piece is a
    part of the padding at the bucket's end. The manifest's `slots` is at least this number."""

    def fill(self, capacity: int) -> float:
        """Return the share of real tokens in all buckets of the split; 0 for an empty split."""
        return self.tokens / (self.buckets * capacity) if self.buckets else 0.0

    @property
    def spread(self) -> float:
        """Coefficient of variation of Σ length² over buckets; 0 for an empty split."""
        if not self.cost_sum:
            return 0.0
        variance = self.buckets * self.cost_square_sum - self.cost_sum**2
        return float(variance**0.5 / self.cost_sum)

    @property
    def peak(self) -> float:
        """Ratio of the largest Σ length² to the mean over buckets; 0 for an empty split."""
        return self.cost_max * self.buckets / self.cost_sum if self.cost_sum else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledClusters:
    """Totals of --sample-clusters. A member is a kept record in a cluster.

    members_shown: for each variant, the number of distinct members that are in this or an earlier
        variant
    residues_shown: for each variant, the number of residues of kept records, in clusters or not,
        that are in a bucket of this or an earlier variant
    """

    clusters: Count
    members: Count
    members_shown: tuple[Count, ...]
    residues_shown: tuple[Count, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationEntry:
    """Entry of an earlier generation of a dataset.

    Each build, append or compaction leaves a new state of the dataset, called a generation. All
    counts include the records of the generations before it.

    digest: digest of the generation's manifest
    build: beginning of the names of the files that the generation added
    records: number of records, kept or not
    kept: number of kept records
    buckets: number of buckets of variant 0, in all splits
    """

    digest: Hash
    build: BuildName
    inputs: Count
    records: Count
    kept: Count
    buckets: Count


Shards = Mapping[str, tuple[ShardEntry, ...]]
"""Entries of the shards of each split."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantEntry:
    """Entry of variant 1 or of a later variant. `--variants` adds these variants.

    splits: totals of each split in this variant
    shards: JSON of the variant's shards. It is decoded when the variant is read, so that the time
        to open a dataset hardly depends on the number of variants.
    """

    splits: Mapping[str, SplitTotals]
    shards: msgspec.Raw

    @classmethod
    def of(cls, splits: Mapping[str, SplitTotals], shards: Shards) -> Self:
        """Return the entry of a variant with these totals and shards."""
        encoded = msgspec.json.encode(shards, order="sorted")
        return cls(splits=splits, shards=msgspec.Raw(encoded))

    def shard_entries(self) -> Shards:
        """Decode and check the entries of the shards.

        Raises:
            ManifestError: an entry lacks a field or has a wrong value, or the entries do not agree
                with the totals.
        """
        try:
            found = decoded(bytes(self.shards), dict[str, tuple[ShardEntry, ...]])
        except ValueError as error:
            raise ManifestError(f"the shards of a variant: {error}") from error
        for split, totals in self.splits.items():
            entries = found.get(split, ())
            agrees = sum(entry.buckets for entry in entries) == totals.buckets
            if not agrees or not all(entry.name.startswith(f"{split}/") for entry in entries):
                raise ManifestError(f"the {split} shards of a variant contradict its totals")
        return found
