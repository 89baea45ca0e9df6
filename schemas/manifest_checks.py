"""Checks of a manifest: its version, the options that readers use, and the entries of files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from schemas.errors import ManifestError
from schemas.manifest_entries import (
    GenerationEntry,
    NamedFileEntry,
    RecordsEntry,
    SampledClusters,
    Shards,
    VariantEntry,
)
from schemas.records import RETIRED, ColumnType, records_schema
from schemas.shard import FORMAT_VERSION, SPLITS, Long
from schemas.split_fractions import SplitFractions
from schemas.text.phrases import plural
from schemas.untrusted_json import (
    MOST_TOKENS,
    OneLine,
    Tokens,
    decoded,
    is_of_another_type,
    prepared,
)

MOST_BUCKETS: Final = (1 << 62) // MOST_TOKENS
"""Maximum number of buckets in a split. The number of the split's tokens then fits into int64."""


class UsedOptions(TypedDict):
    """Build options that readers of a dataset use. A manifest also holds other options."""

    dedup: Literal["exact", "cropped", "none"]
    keep_header: NotRequired[bool]
    length_multiple: Tokens
    long: Long
    max_seqs: Tokens
    min_residues: Annotated[int, Meta(ge=1)]
    on_invalid: Literal["unk", "skip", "error"]
    packer: Annotated[str, Meta(max_length=100)]
    split: Annotated[str, Meta(max_length=100)]
    source_release: NotRequired[OneLine | None]
    license: NotRequired[OneLine | None]


def option_problems(options: Mapping[str, object], capacity: int) -> Iterator[str]:
    """Yield a description of each problem of a manifest's options.

    Args:
        capacity: tokens in a bucket.
    """
    try:
        prepared(UsedOptions)  # threads may convert at the same time, see `prepared`
        used = msgspec.convert(dict(options), UsedOptions)
    except msgspec.ValidationError as error:
        yield f"options: {error}"
        return
    if capacity % used["length_multiple"]:
        yield (
            f"options: length_multiple {used['length_multiple']} does not divide "
            f"capacity {capacity}"
        )
    try:
        if (split := str(SplitFractions.parse(used["split"]))) != used["split"]:
            yield f"options: split is {used['split']!r}, expected this spelling: {split!r}"
    except ValueError as error:
        yield f"options: {error}"


def name_problems(shards: Shards, records: Sequence[RecordsEntry]) -> Iterator[str]:
    """Check the names of files, except shards of variants after variant 0."""
    named = [(split, entry.name) for split in SPLITS for entry in shards[split]]
    named += [("records", entry.name) for entry in records]
    for folder, name in named:
        if not name.startswith(f"{folder}/"):
            yield f"file name {name!r} is not in {folder}/"
            return
    if len({name for _, name in named}) != len(named):
        yield "two files have the same name"


def size_problems(shards: Shards) -> Iterator[str]:
    """Check the number of buckets of each split."""
    for split, entries in shards.items():
        buckets = sum(entry.buckets for entry in entries)
        if buckets > MOST_BUCKETS:
            yield f"{split}: {buckets} buckets, expected at most {MOST_BUCKETS}"


def variant_problems(shards: Shards, more_variants: Sequence[VariantEntry]) -> Iterator[str]:
    """Check the totals of the variants after variant 0.

    Args:
        shards: shards of variant 0.
    """
    for number, variant in enumerate(more_variants, 1):
        if set(variant.splits) != set(SPLITS):
            yield f"variant {number}: splits are {sorted(variant.splits)}"
            continue
        for split, totals in variant.splits.items():
            if totals.buckets > MOST_BUCKETS:
                yield f"variant {number}: {totals.buckets} buckets of {split}"
            if bool(totals.buckets) != any(entry.buckets for entry in shards[split]):
                yield f"{split} has buckets in only one of variant 0 and variant {number}"


def metadata_problems(
    columns: Mapping[str, ColumnType],
    named_files: Sequence[NamedFileEntry],
    found: int,
    records: int,
) -> Iterator[str]:
    """Check the columns that --metadata adds to records/.

    Args:
        columns: type of each column.
        found: number of records with a row in the table.
        records: number of records, kept or not.
    """
    if columns and not any(entry.option == "metadata" for entry in named_files):
        yield "metadata_columns has columns, but named_files has no file of --metadata"
    own = records_schema(keep_header=True).names if columns else []
    for name in columns:
        if name in own:
            yield f"metadata_columns: records/ has a column {name!r} even without --metadata"
    if found > records:
        yield f"metadata_records is {found}, more than there are records"


def history_problems(
    history: Sequence[GenerationEntry], generation: int, parent: str | None
) -> Iterator[str]:
    """Check the entries of earlier generations.

    Args:
        generation: number of the manifest's generation.
        parent: digest of the generation before.
    """
    if len(history) != generation - 1:
        yield f"generation is {generation}, but history has {len(history)} earlier generations"
    elif parent != (history[-1].digest if history else None):
        yield "parent is not the digest of the last generation in history"


def retired_problems(
    retired: Sequence[RecordsEntry], history: Sequence[GenerationEntry], build: str
) -> Iterator[str]:
    """Check the entries of retired/. An entry's name states the build of its generation.

    Args:
        history: entries of earlier generations.
        build: build of the manifest's generation.
    """
    builds = [*(entry.build for entry in history), build]
    names = {f"{RETIRED}/{each}.parquet": number for number, each in enumerate(builds) if number}
    last = rows = 0
    for entry in retired:
        number, rows = names.get(entry.name, 0), rows + entry.rows
        if not number:
            yield f"file name {entry.name!r} is not {RETIRED}/BUILD.parquet with a later build"
        elif number <= last:
            yield "the files of retired/ are not in the order of their generations"
        elif not entry.rows or rows > history[number - 1].records:
            before = history[number - 1].records
            yield f"{entry.name} has {entry.rows} rows, but {before} records were there to retire"
        else:
            last = number
            continue
        return


def sampling_problems(sampled: SampledClusters, variants: int, kept: int) -> Iterator[str]:
    """Check the totals of --sample-clusters.

    Args:
        variants: number of variants.
        kept: number of kept records.
    """
    shown, clusters, members = sampled.members_shown, sampled.clusters, sampled.members
    if not clusters <= members <= kept or bool(clusters) != bool(members):
        yield f"sampled_clusters: {clusters} clusters, {members} members and {kept} kept records"
    if not len(shown) == len(sampled.residues_shown) == variants:
        yield f"sampled_clusters: its lists do not have {plural(variants, 'number')}"
    elif shown[0] != clusters or shown[-1] > members:
        yield "sampled_clusters: members_shown disagrees with clusters or members"
    elif any(not 0 <= new - old <= clusters for old, new in itertools.pairwise(shown)):
        yield "sampled_clusters: members_shown grows by more than clusters, or shrinks"
    elif list(sampled.residues_shown) != sorted(sampled.residues_shown):
        yield "sampled_clusters: residues_shown shrinks"


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """Keys that are checked before all others."""

    format: int | float | str | bool | None = None
    digest: str | None = None


def checked_head(text: str | bytes, where: str) -> Head:
    """Read the keys that are checked first.

    Raises:
        ManifestError: the text is not JSON, not a manifest, or has another format version.
    """
    try:
        head = decoded(text, Head)
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


def _version() -> str:
    from schemas import __version__

    return __version__
