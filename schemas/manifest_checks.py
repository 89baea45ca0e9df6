"""Checks of a manifest: values of the options that readers use, and contradictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from schemas.records import records_schema
from schemas.shard import SPLITS, Long, slots_for
from schemas.split_fractions import SplitFractions
from schemas.untrusted_json import MOST_TOKENS, OneLine, Tokens, prepared

if TYPE_CHECKING:
    from schemas.manifest import Manifest

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


def _option_problems(options: Mapping[str, object], capacity: int) -> Iterator[str]:
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


def contradictions(manifest: Manifest) -> Iterator[str]:
    """Yield a description of each contradiction in a manifest."""
    yield from _option_problems(manifest.options, manifest.capacity)
    yield from _metadata(manifest)
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
    yield from _names(manifest)
    yield from _sizes(manifest)
    yield from _variants(manifest)


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
    """Check the names of files, except shards of variants after variant 0."""
    named = [(split, entry.name) for split in SPLITS for entry in manifest.shards[split]]
    named += [("records", entry.name) for entry in manifest.records]
    for folder, name in named:
        if not name.startswith(f"{folder}/"):
            yield f"file name {name!r} is not in {folder}/"
            return
    if len({name for _, name in named}) != len(named):
        yield "two files have the same name"


def _sizes(manifest: Manifest) -> Iterator[str]:
    for split, shards in manifest.shards.items():
        buckets = sum(entry.buckets for entry in shards)
        if buckets > MOST_BUCKETS:
            yield f"{split}: {buckets} buckets, expected at most {MOST_BUCKETS}"


def _variants(manifest: Manifest) -> Iterator[str]:
    """Check the totals of the variants after variant 0."""
    for number, variant in enumerate(manifest.more_variants, 1):
        if set(variant.splits) != set(SPLITS):
            yield f"variant {number}: splits are {sorted(variant.splits)}"
            continue
        for split, totals in variant.splits.items():
            if totals.buckets > MOST_BUCKETS:
                yield f"variant {number}: {totals.buckets} buckets of {split}"
            if bool(totals.buckets) != any(entry.buckets for entry in manifest.shards[split]):
                yield f"{split} has buckets in only one of variant 0 and variant {number}"
