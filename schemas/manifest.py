"""manifest.json, the file that lists the contents of a dataset.

The bytes of the file depend only on inputs, options and version. Therefore keys are sorted, and the
file holds no time, host, user or absolute path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import xxhash
from msgspec import Meta

from schemas.errors import ManifestError
from schemas.manifest_entries import (
    Histogram,
    InputEntry,
    NamedFileEntry,
    RecordsEntry,
    ShardEntry,
    SplitTotals,
)
from schemas.manifest_options import option_problems
from schemas.records import MOST_METADATA_COLUMNS, ColumnType, records_schema
from schemas.shard import FORMAT_VERSION, SPLITS, SequenceLimits, slots_for
from schemas.untrusted_json import (
    MOST_TOKENS,
    ColumnName,
    Count,
    Hash,
    Tokens,
    decoded,
    is_of_another_type,
)
from schemas.vocabulary import VOCABULARIES, Vocabulary

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST_NAME: Final = "manifest.json"
WORK: Final = ".build"
"""Name of the work folder in a dataset's folder. It holds the files of unfinished builds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest(SequenceLimits):
    """The manifest of a dataset. docs/reference/format.md explains every key."""

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
    def digest(self) -> str:
        """Return the xxh3_128 of the canonical JSON without the digest itself."""
        return xxhash.xxh3_128_hexdigest(_canonical(self))

    def to_json(self) -> str:
        """Return canonical JSON with the digest, sorted keys and a final newline."""
        return (
            json.dumps(
                {**asdict(self), "digest": self.digest}, sort_keys=True, indent=1, ensure_ascii=True
            )
            + "\n"
        )

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
        head = _checked_head(text, where)
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
        for problem in _problems(manifest):
            raise ManifestError(
                f"{where}: {problem}: the manifest contradicts itself; build the dataset again"
            )
        # the keys of the file are sorted; readers show the splits in their own order
        return replace(
            manifest,
            shards={split: manifest.shards[split] for split in SPLITS},
            splits={split: manifest.splits[split] for split in SPLITS},
        )

    def files(self) -> tuple[ShardEntry | RecordsEntry, ...]:
        """Return all files of the dataset except the manifest."""
        return (*(entry for entries in self.shards.values() for entry in entries), *self.records)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Head:
    """Keys that are checked before all others."""

    format: int | float | str | bool | None = None
    digest: str | None = None


def _checked_head(text: str | bytes, where: str) -> _Head:
    """Read the keys that are checked first.

    Raises:
        ManifestError: the text is not JSON, not a manifest, or has another format version.
    """
    try:
        head = decoded(text, _Head)
    except ValueError as error:
        if is_of_another_type(error):
            raise ManifestError(
                f"{where}: not a manifest ({error}); build the damaged dataset again"
            ) from error
        raise ManifestError(
            f"{where}: not JSON ({error}); build the damaged dataset again"
        ) from error
    if head.format != FORMAT_VERSION:
        raise ManifestError(
            f"{where}: format version {head.format!r}, "
            f"but this thdpack {_version()} reads version {FORMAT_VERSION}: "
            "build the dataset again"
        )
    return head


def _canonical(raw: Mapping[str, Any] | Manifest) -> bytes:
    return json.dumps(
        raw, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_fields_of
    ).encode()


def _fields_of(entry: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as a dict, without copying their values.

    `asdict` also copies the values, which takes a tenth of a second for 10,000 shards.
    """
    return {name: getattr(entry, name) for name in entry.__slots__}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _version() -> str:
    from schemas import __version__

    return __version__


def _problems(manifest: Manifest) -> Iterator[str]:
    """Yield a description of each contradiction in a manifest."""
    yield from option_problems(manifest.options, manifest.capacity)
    yield from _metadata(manifest)
    if not 3 <= manifest.max_seq_len <= manifest.capacity:
        yield (
            f"max_seq_len is {manifest.max_seq_len}, expected 3 to {manifest.capacity} "
            "(the capacity)"
        )
    pieces = max((totals.pieces_max for totals in manifest.splits.values()), default=0)
    if pieces > manifest.capacity:
        yield f"pieces_max is {pieces}, more than the capacity of {manifest.capacity}"
    elif manifest.slots != slots_for(pieces):
        yield f"slots is {manifest.slots}, expected {slots_for(pieces)} for pieces_max {pieces}"
    if set(manifest.shards) != set(SPLITS) or set(manifest.splits) != set(SPLITS):
        yield (
            f"splits are {sorted({*manifest.shards, *manifest.splits})}, expected {sorted(SPLITS)}"
        )
        return
    yield from _names(manifest)
    yield from _sizes(manifest)


def _metadata(manifest: Manifest) -> Iterator[str]:
    """Check the columns that --metadata adds to records/."""
    columns = manifest.metadata_columns
    if columns and not any(entry.option == "metadata" for entry in manifest.named_files):
        yield "metadata_columns has columns, but named_files has no file of --metadata"
    own = records_schema(keep_header=True).names if columns else []
    for name in columns:
        if name in own:
            yield f"metadata_columns: records/ has a column {name!r} even without --metadata"
    if manifest.metadata_records > sum(manifest.records_by_status.values()):
        yield f"metadata_records is {manifest.metadata_records}, more than there are records"


def _names(manifest: Manifest) -> Iterator[str]:
    named = [(split, entry.name) for split in SPLITS for entry in manifest.shards[split]]
    for folder, name in (*named, *(("records", entry.name) for entry in manifest.records)):
        if not name.startswith(f"{folder}/"):
            yield f"file name {name!r} is not in {folder}/"
            return
    if len({entry.name for entry in manifest.files()}) != len(manifest.files()):
        yield "two files have the same name"


def _sizes(manifest: Manifest) -> Iterator[str]:
    for split, shards in manifest.shards.items():
        buckets = sum(entry.buckets for entry in shards)
        if buckets > MOST_BUCKETS:
            yield f"{split}: {buckets} buckets, expected at most {MOST_BUCKETS}"


MOST_BUCKETS = (1 << 62) // MOST_TOKENS
"""Maximum number of buckets in a split. The number of the split's tokens then fits into int64."""
