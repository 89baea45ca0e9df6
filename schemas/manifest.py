"""manifest.json: what a dataset consists of, and the only thing that says so.

Its bytes depend on inputs, options and version alone: sorted keys, no time, host, user or absolute path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final, Self

import xxhash
from msgspec import Meta

from schemas.errors import ManifestError
from schemas.manifest_rules import problems
from schemas.shard import FORMAT_VERSION
from schemas.untrusted_json import Count, FileName, Hash, LargeCount, Name, Tokens, decoded, is_of_another_type
from schemas.vocabulary import VOCABULARIES, Vocabulary

MANIFEST_NAME: Final = "manifest.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardEntry:
    """One shard: `name` relative to the dataset, xxh3_128 in hexadecimal."""

    name: FileName
    bytes: Count
    buckets: Count
    tokens: Count
    xxh3_128: Hash


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordsEntry:
    """One records/ file."""

    name: FileName
    bytes: Count
    rows: Count
    xxh3_128: Hash


@dataclass(frozen=True, kw_only=True, slots=True)
class InputEntry:
    """One input: `name` relative to the inputs' common folder; content hash of the bytes as stored, compressed or not."""

    name: Name
    bytes: Count
    xxh3_128: Hash
    records: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    """Counts of values in bins of equal width: `counts[i]` values v with first + i·width ≤ v < first + (i+1)·width."""

    first: Count
    width: Annotated[int, Meta(ge=1, le=1 << 62)]
    counts: tuple[Count, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitTotals:
    """What a split holds. Sums are exact integers, so that no order of summing shows.

    cost_sum, cost_square_sum: Σ over buckets of c and of c², c being the bucket's Σ length²
    """

    buckets: Count
    sequences: Count
    tokens: Count
    cost_sum: LargeCount
    cost_square_sum: LargeCount
    cost_max: Count
    seqs_max: Count
    pieces_max: Count
    """Most sequences and tail pieces in one bucket; what `slots` has to hold."""

    def fill(self, capacity: int) -> float:
        """Real tokens / capacity over the split; 0 for an empty one."""
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
        """Largest Σ length² over its mean; 0 for an empty split."""
        return self.cost_max * self.buckets / self.cost_sum if self.cost_sum else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """A dataset. See docs/format.md for every key."""

    build: Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    version: Annotated[str, Meta(max_length=100)]
    vocabulary: Annotated[str, Meta(max_length=100)]
    vocabulary_digest: Hash
    capacity: Tokens
    max_seq_len: Tokens
    slots: Tokens
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    options: Mapping[str, int | float | str | None]
    inputs: tuple[InputEntry, ...]
    shards: Mapping[str, tuple[ShardEntry, ...]]
    records: tuple[RecordsEntry, ...]
    records_by_status: Mapping[str, Count]
    cropped_copies: Count
    residues_in: Count
    residues_kept: Count
    residue_counts: Mapping[str, Count]
    splits: Mapping[str, SplitTotals]
    histograms: Mapping[str, Mapping[str, Histogram]]
    generation: Annotated[int, Meta(ge=1, le=1 << 62)] = 1
    parent: Hash | None = None
    format: int = field(default=FORMAT_VERSION)

    @property
    def length_multiple(self) -> int:
        return int(self.options["length_multiple"] or 1)

    @property
    def vocabulary_object(self) -> Vocabulary:
        return VOCABULARIES[self.vocabulary]

    @property
    def digest(self) -> str:
        """xxh3_128 of the canonical JSON without the digest itself."""
        return xxhash.xxh3_128_hexdigest(_canonical(self))

    def to_json(self) -> str:
        """Canonical JSON, digest included, sorted keys, a final newline."""
        return json.dumps({**asdict(self), "digest": self.digest}, sort_keys=True, indent=1, ensure_ascii=True) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str) -> Self:
        """Read and check a manifest.

        Args:
            text: what manifest.json holds.
            where: its path or URL, for errors.
        Raises:
            ManifestError: too large, not JSON, an unknown version, a field that is missing or out of its range, fields that
                do not fit together, or a digest that does not match.
        """
        try:
            head = decoded(text, _Head)
        except ValueError as error:
            if is_of_another_type(error):
                raise ManifestError(f"{where}: not a manifest ({error}); the dataset is damaged, build it again") from error
            raise ManifestError(f"{where}: not JSON ({error}); the dataset is damaged, build it again") from error
        if head.format != FORMAT_VERSION:
            raise ManifestError(f"{where}: format version {head.format!r}, this thdpack {_version()} reads version {FORMAT_VERSION}")
        try:
            manifest = decoded(text, cls)
        except ValueError as error:
            raise ManifestError(f"{where}: a key is missing or has a wrong value: {error}; the dataset is damaged, build it again") from error
        if head.digest != manifest.digest:
            raise ManifestError(f"{where}: the manifest does not match its own digest: it was edited or damaged, build it again")
        vocabulary = VOCABULARIES.get(manifest.vocabulary)
        if vocabulary is None or vocabulary.digest != manifest.vocabulary_digest:
            raise ManifestError(f"{where}: vocabulary {manifest.vocabulary!r} is not the one this thdpack knows by that name")
        for problem in problems(manifest):
            raise ManifestError(f"{where}: {problem}: the manifest contradicts itself, build the dataset again")
        return manifest

    def files(self) -> tuple[ShardEntry | RecordsEntry, ...]:
        """All files of the dataset but the manifest."""
        return (*(entry for entries in self.shards.values() for entry in entries), *self.records)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Head:
    """What is looked at before everything else."""

    format: int | float | str | bool | None = None
    digest: str | None = None


def _canonical(raw: Mapping[str, Any] | Manifest) -> bytes:
    return json.dumps(raw, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_fields_of).encode()


def _fields_of(entry: Any) -> dict[str, Any]:
    """A dataclass as a dict, one level deep: asdict copies, which takes a tenth of a second for 10,000 shards."""
    return {name: getattr(entry, name) for name in entry.__slots__}


def _version() -> str:
    from schemas import __version__

    return __version__
