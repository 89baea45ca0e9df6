"""manifest.json: what a dataset consists of, and the only thing that says so.

Its bytes depend on inputs, options and version alone: sorted keys, no time, host, user or absolute path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final, Self

import xxhash

from schemas.errors import ManifestError
from schemas.shard import FORMAT_VERSION, SPLITS
from schemas.vocabulary import VOCABULARIES, Vocabulary

MANIFEST_NAME: Final = "manifest.json"
_FOLDERS: Final = (*SPLITS, "records")


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardEntry:
    """One shard: `name` relative to the dataset, xxh3_128 in hexadecimal."""

    name: str
    bytes: int
    buckets: int
    tokens: int
    xxh3_128: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordsEntry:
    """One records/ file."""

    name: str
    bytes: int
    rows: int
    xxh3_128: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InputEntry:
    """One input: `name` relative to the inputs' common folder; content hash of the bytes as stored, compressed or not."""

    name: str
    bytes: int
    xxh3_128: str
    records: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    """Counts of values in bins of equal width: `counts[i]` values v with first + i·width ≤ v < first + (i+1)·width."""

    first: int
    width: int
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitTotals:
    """What a split holds. Sums are exact integers, so that no order of summing shows.

    cost_sum, cost_square_sum: Σ over buckets of c and of c², c being the bucket's Σ length²
    """

    buckets: int
    sequences: int
    tokens: int
    cost_sum: int
    cost_square_sum: int
    cost_max: int
    seqs_max: int
    pieces_max: int
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

    build: str
    version: str
    vocabulary: str
    vocabulary_digest: str
    capacity: int
    max_seq_len: int
    slots: int
    seed: int
    options: Mapping[str, int | float | str | None]
    inputs: tuple[InputEntry, ...]
    shards: Mapping[str, tuple[ShardEntry, ...]]
    records: tuple[RecordsEntry, ...]
    records_by_status: Mapping[str, int]
    residues_in: int
    residues_kept: int
    residue_counts: Mapping[str, int]
    splits: Mapping[str, SplitTotals]
    histograms: Mapping[str, Mapping[str, Histogram]]
    generation: int = 1
    parent: str | None = None
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
            ManifestError: not JSON, an unknown version, a digest that does not match, a path that leaves the dataset, a key
                missing or of another type.
        """
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise ManifestError(f"{where}: not JSON ({error}); the dataset is damaged, build it again") from error
        if not isinstance(raw, dict) or raw.get("format") != FORMAT_VERSION:
            found = raw.get("format") if isinstance(raw, dict) else None
            raise ManifestError(f"{where}: format version {found!r}, this thdpack {_version()} reads version {FORMAT_VERSION}")
        digest = raw.pop("digest", None)
        if digest != xxhash.xxh3_128_hexdigest(_canonical(raw)):
            raise ManifestError(f"{where}: the manifest does not match its own digest: it was edited or damaged, build it again")
        try:
            manifest = cls(**_parsed(raw))
        except (KeyError, TypeError, AttributeError) as error:
            raise ManifestError(f"{where}: a key is missing, unknown or of the wrong type: {error}") from error
        manifest._check_names(where)
        vocabulary = VOCABULARIES.get(manifest.vocabulary)
        if vocabulary is None or vocabulary.digest != manifest.vocabulary_digest:
            raise ManifestError(f"{where}: vocabulary {manifest.vocabulary!r} is not the one this thdpack knows by that name")
        return manifest

    def files(self) -> tuple[ShardEntry | RecordsEntry, ...]:
        """All files of the dataset but the manifest."""
        return (*(entry for entries in self.shards.values() for entry in entries), *self.records)

    def _check_names(self, where: str) -> None:
        for entry in self.files():
            parts = PurePosixPath(entry.name).parts
            safe = len(parts) == 2 and parts[0] in _FOLDERS and ".." not in parts and "\\" not in entry.name
            if not safe or "\0" in entry.name or "/".join(parts) != entry.name:
                raise ManifestError(f"{where}: {entry.name!r} is not a file of the dataset's own folders {', '.join(_FOLDERS)}")


def _canonical(raw: Mapping[str, Any] | Manifest) -> bytes:
    return json.dumps(raw, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_fields_of).encode()


def _fields_of(entry: Any) -> dict[str, Any]:
    """A dataclass as a dict, one level deep: asdict copies, which takes a tenth of a second for 10,000 shards."""
    return {name: getattr(entry, name) for name in entry.__slots__}


def _parsed(raw: dict[str, Any]) -> dict[str, Any]:
    """The nested entries of the JSON as their dataclasses."""
    return {
        **raw,
        "inputs": tuple(InputEntry(**entry) for entry in raw["inputs"]),
        "shards": {split: tuple(ShardEntry(**entry) for entry in raw["shards"][split]) for split in raw["shards"]},
        "records": tuple(RecordsEntry(**entry) for entry in raw["records"]),
        "splits": {split: SplitTotals(**totals) for split, totals in raw["splits"].items()},
        "histograms": {
            split: {name: Histogram(**{**h, "counts": tuple(h["counts"])}) for name, h in of_split.items()} for split, of_split in raw["histograms"].items()
        },
    }


def _version() -> str:
    from schemas import __version__

    return __version__
