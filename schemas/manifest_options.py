"""Options of a build that readers of its manifest use, and the checks of their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from schemas.shard import Long
from schemas.split_fractions import SplitFractions
from schemas.untrusted_json import OneLine, Tokens, prepared


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
