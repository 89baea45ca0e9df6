"""manifest.json, the file that lists the contents of a dataset.

The bytes of the file depend only on the inputs, the options, and the versions of thdpack and
pyarrow. Keys are therefore sorted, and the file holds no time, host, user or absolute path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import msgspec
import xxhash
from msgspec import Meta

from schemas.errors import ManifestError
from schemas.manifest_checks import (
    checked_head,
    history_problems,
    metadata_problems,
    name_problems,
    option_problems,
    retired_problems,
    sampling_problems,
    size_problems,
    variant_problems,
)
from schemas.manifest_entries import (
    GenerationEntry,
    Histogram,
    InputEntry,
    NamedFileEntry,
    RecordsEntry,
    SampledClusters,
    ShardEntry,
    Shards,
    SplitTotals,
    VariantEntry,
)
from schemas.records import MOST_METADATA_COLUMNS, ColumnType, records_schema
from schemas.shard import FORMAT_VERSION, SPLITS, SequenceLimits, slots_for
from schemas.untrusted_json import (
    ColumnName,
    Count,
    Hash,
    Tokens,
    decoded,
)
from schemas.vocabulary import VOCABULARIES, Vocabulary

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST_NAME: Final = "manifest.json"
WORK: Final = ".build"
"""Name of the work folder in a dataset's folder. It holds the files of unfinished builds."""
GENERATIONS: Final = "generations"
"""Folder of the manifests of earlier generations, in a dataset's folder. Each build, append or
compaction leaves a new state of the dataset, called a generation."""
_OMITTED: Final = ("more_variants", "sampled_clusters", "history", "retired")
"""Keys that the JSON has only if they are not empty."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest(SequenceLimits):
    """The manifest of a dataset. docs/reference/format.md explains every key.

    A variant holds all kept records, shuffled, cropped and packed with a seed of its own. With
    --sample-clusters, it holds only one kept record of each cluster. `shards`, `splits` and all
    counts describe variant 0. `more_variants` has the other variants.
    """

    build: Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    version: Annotated[str, Meta(max_length=100)]
    vocabulary: Annotated[str, Meta(max_length=100)]
    vocabulary_digest: Hash
    capacity: Tokens
    max_seq_len: Tokens
    slots: Tokens
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    options: Mapping[str, bool | int | float | str | None]
    inputs: tuple[InputEntry, ...]
    named_files: tuple[NamedFileEntry, ...] = ()
    metadata_columns: Annotated[
        Mapping[ColumnName, ColumnType], Meta(max_length=MOST_METADATA_COLUMNS)
    ] = field(default_factory=dict)
    metadata_records: Count = 0
    shards: Shards
    records: tuple[RecordsEntry, ...]
    records_by_status: Mapping[str, Count]
    cropped_copies: Count
    residues_in: Count
    residues_kept: Count
    residue_counts: Mapping[str, Count]
    splits: Mapping[str, SplitTotals]
    histograms: Mapping[str, Mapping[str, Histogram]]
    more_variants: tuple[VariantEntry, ...] = ()
    sampled_clusters: SampledClusters | None = None
    generation: Annotated[int, Meta(ge=1, le=1 << 62)] = 1
    parent: Hash | None = None
    history: tuple[GenerationEntry, ...] = ()
    retired: tuple[RecordsEntry, ...] = ()
    format: int = field(default=FORMAT_VERSION)

    @property
    def length_multiple(self) -> int:
        return int(self.options["length_multiple"] or 1)

    @property
    def records_schema(self) -> pa.Schema:
        """Arrow schema of records/, with the columns that --keep-header and --metadata add."""
        return records_schema(
            keep_header=bool(self.options.get("keep_header")),
            metadata_columns=self.metadata_columns,
        )

    @property
    def source_release(self) -> str | None:
        """Release of the inputs, as the user named it."""
        return _text(self.options.get("source_release"))

    @property
    def license(self) -> str | None:
        """Licence of the inputs, as the user named it."""
        return _text(self.options.get("license"))

    @property
    def vocabulary_object(self) -> Vocabulary:
        return VOCABULARIES[self.vocabulary]

    @property
    def variants(self) -> int:
        """Number of variants."""
        return 1 + len(self.more_variants)

    def shards_of(self, variant: int) -> Shards:
        """Return the entries of a variant's shards.

        Raises:
            ManifestError: the manifest is damaged.
        """
        return self.shards if variant == 0 else self.more_variants[variant - 1].shard_entries()

    def splits_of(self, variant: int) -> Mapping[str, SplitTotals]:
        """Return the totals of each split in a variant."""
        return self.splits if variant == 0 else self.more_variants[variant - 1].splits

    def all_shards(self, variants: range | None = None) -> Iterator[tuple[int, str, ShardEntry]]:
        """Yield the variant, the split and the entry of each shard.

        Args:
            variants: numbers of the variants; None for all.
        Raises:
            ManifestError: the manifest is damaged.
        """
        for variant in range(self.variants) if variants is None else variants:
            for split, entries in self.shards_of(variant).items():
                yield from ((variant, split, entry) for entry in entries)

    @property
    def digest(self) -> str:
        """Return the xxh3_128 of the canonical JSON without the digest itself.

        In this JSON, the shards of each variant after variant 0 are replaced by the hash of their
        JSON.
        """
        return xxhash.xxh3_128_hexdigest(_canonical(self))

    def to_json(self) -> str:
        """Return canonical JSON with the digest, sorted keys and a final newline."""
        found = _given_fields(self)
        found["digest"] = self.digest
        if self.more_variants:
            found["more_variants"] = [
                {"splits": entry.splits, "shards": msgspec.json.decode(entry.shards)}
                for entry in self.more_variants
            ]
        text = json.dumps(found, sort_keys=True, indent=1, ensure_ascii=True, default=_fields_of)
        return text + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str) -> Self:
        """Read and check a manifest.

        Args:
            text: content of manifest.json.
            where: path or URL of the file, for errors.
        Raises:
            ManifestError: the text is too large, is not JSON, has an unknown version, lacks a
                field, has a field out of range, contradicts itself, or does not match its digest.
        """
        head = checked_head(text, where)
        try:
            manifest = decoded(text, cls)
        except ValueError as error:
            raise ManifestError(
                f"{where}: a key is missing or has a wrong value: {error}; "
                "the dataset is damaged: build the dataset again"
            ) from error
        if head.digest != manifest.digest:
            raise ManifestError(
                f"{where}: the manifest does not match its own digest: "
                "the file was edited or damaged; build the dataset again"
            )
        vocabulary = VOCABULARIES.get(manifest.vocabulary)
        if vocabulary is None or vocabulary.digest != manifest.vocabulary_digest:
            raise ManifestError(
                f"{where}: this thdpack has no vocabulary {manifest.vocabulary!r} with the tokens "
                "of this dataset"
            )
        for problem in _contradictions(manifest):
            raise ManifestError(
                f"{where}: {problem}: the manifest contradicts itself; build the dataset again"
            )
        # the keys of the file are sorted, but readers show the splits in the order of SPLITS
        return replace(
            manifest,
            shards={split: manifest.shards[split] for split in SPLITS},
            splits={split: manifest.splits[split] for split in SPLITS},
        )

    def files(self) -> tuple[ShardEntry | RecordsEntry, ...]:
        """Return the entries of all shards and of all files of records/ and retired/.

        Raises:
            ManifestError: the manifest is damaged.
        """
        return (*(entry for _, _, entry in self.all_shards()), *self.records, *self.retired)


def _canonical(raw: Mapping[str, Any] | Manifest) -> bytes:
    return json.dumps(
        raw, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_fields_of
    ).encode()


def _fields_of(entry: Any) -> dict[str, Any] | str:
    """Return the fields of a dataclass as a dict, without copying their values.

    `asdict` also copies the values, which takes a tenth of a second for 10,000 shards. The shards
    of a variant after variant 0 are JSON text: return the hash of this text.
    """
    if isinstance(entry, msgspec.Raw):
        return xxhash.xxh3_128_hexdigest(msgspec.json.format(bytes(entry), indent=-1))
    return _given_fields(entry)


def _given_fields(entry: Any) -> dict[str, Any]:
    values = {name: getattr(entry, name) for name in entry.__slots__}
    return {name: value for name, value in values.items() if value or name not in _OMITTED}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _contradictions(manifest: Manifest) -> Iterator[str]:
    """Yield a description of each contradiction in a manifest."""
    yield from option_problems(manifest.options, manifest.capacity)
    yield from metadata_problems(
        manifest.metadata_columns,
        manifest.named_files,
        manifest.metadata_records,
        sum(manifest.records_by_status.values()),
    )
    if not 3 <= manifest.max_seq_len <= manifest.capacity:
        yield (
            f"max_seq_len is {manifest.max_seq_len}, expected 3 to {manifest.capacity} "
            "(the capacity)"
        )
    pieces = max(
        (
            totals.pieces_max
            for variant in range(manifest.variants)
            for totals in manifest.splits_of(variant).values()
        ),
        default=0,
    )
    if pieces > manifest.capacity:
        yield f"pieces_max is {pieces}, more than the capacity of {manifest.capacity}"
    elif manifest.slots != slots_for(pieces):
        yield f"slots is {manifest.slots}, expected {slots_for(pieces)} for pieces_max {pieces}"
    if set(manifest.shards) != set(SPLITS) or set(manifest.splits) != set(SPLITS):
        yield (
            f"splits are {sorted({*manifest.shards, *manifest.splits})}, expected {sorted(SPLITS)}"
        )
        return
    yield from name_problems(manifest.shards, manifest.records)
    yield from size_problems(manifest.shards)
    yield from history_problems(manifest.history, manifest.generation, manifest.parent)
    yield from retired_problems(manifest.retired, manifest.history, manifest.build)
    yield from variant_problems(manifest.shards, manifest.more_variants)
    sampled = any(entry.option == "sample-clusters" for entry in manifest.named_files)
    if sampled != (manifest.sampled_clusters is not None):
        yield "it must have both sampled_clusters and a file of --sample-clusters, or neither"
    if manifest.sampled_clusters is not None:
        kept = manifest.records_by_status.get("kept", 0)
        yield from sampling_problems(manifest.sampled_clusters, manifest.variants, kept)
