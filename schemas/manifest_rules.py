"""What must hold between the fields of a manifest before anything is done with it.

Whether its totals are those of its files is what `thdpack verify` looks at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

import msgspec
from msgspec import Meta

from schemas.shard import SPLITS, slots_for
from schemas.untrusted_json import MOST_TOKENS, Tokens

if TYPE_CHECKING:
    from schemas.manifest import Manifest


class UsedOptions(TypedDict):
    """The options of a build that readers of its dataset use; it may have more."""

    dedup: Literal["exact", "cropped", "none"]
    length_multiple: Tokens
    long: Literal["truncate", "split", "drop"]
    max_seqs: Tokens
    min_residues: Annotated[int, Meta(ge=1)]
    on_invalid: Literal["unk", "skip", "error"]
    packer: Annotated[str, Meta(max_length=100)]
    valid_fraction: Annotated[float, Meta(ge=0, le=1)]


def problems(manifest: Manifest) -> Iterator[str]:
    """Yield what does not fit together."""
    yield from _options(manifest)
    if not 3 <= manifest.max_seq_len <= manifest.capacity:
        yield f"max_seq_len {manifest.max_seq_len} of capacity {manifest.capacity}, expected 3 to the capacity"
    pieces = max((totals.pieces_max for totals in manifest.splits.values()), default=0)
    if pieces > manifest.capacity:
        yield f"pieces_max {pieces} of capacity {manifest.capacity}"
    elif manifest.slots != slots_for(pieces):
        yield f"slots {manifest.slots} for pieces_max {pieces}, expected {slots_for(pieces)}"
    if set(manifest.shards) != set(SPLITS) or set(manifest.splits) != set(SPLITS):
        yield f"splits {sorted({*manifest.shards, *manifest.splits})}, expected {sorted(SPLITS)}"
        return
    yield from _names(manifest)
    yield from _sizes(manifest)


def _options(manifest: Manifest) -> Iterator[str]:
    try:
        used = msgspec.convert(dict(manifest.options), UsedOptions)
    except msgspec.ValidationError as error:
        yield f"options: {error}"
        return
    if manifest.capacity % used["length_multiple"]:
        yield f"options: length_multiple {used['length_multiple']} does not divide capacity {manifest.capacity}"


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
"""Buckets of a split: their tokens can be counted in int64."""
