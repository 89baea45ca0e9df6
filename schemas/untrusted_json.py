"""Decode untrusted JSON, and check types, ranges and patterns.

A document is decoded directly into its type, so that wrong values are refused before they use
memory.
"""

from __future__ import annotations

import functools
import threading
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from schemas.text.one_line import MOST_CHARACTERS, ONE_LINE

MOST_BYTES: Final = 256 << 20
"""Maximum size of a document in bytes. A manifest of a million files has about this size."""
MOST_TOKENS: Final = 1 << 24
"""Largest capacity of a bucket, in tokens."""

Count = Annotated[int, Meta(ge=0, le=1 << 62)]
"""An integer from 0 to 2^62."""
LargeCount = Annotated[int, Meta(ge=0)]
"""A non-negative integer of any size."""
Tokens = Annotated[int, Meta(ge=1, le=MOST_TOKENS)]
"""A number of tokens in a bucket or a sequence."""
Hash = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""An xxh3_128 in hexadecimal."""
Name = Annotated[str, Meta(min_length=1, max_length=4096)]
"""A name that is only displayed. No file of this name is opened."""
ColumnName = Annotated[
    str, Meta(min_length=1, max_length=255, pattern=r"\A[^\x00-\x1f\x7f-\x9f\u2028\u2029]+\Z")
]
"""Name of a column, without control characters and line ends."""
OneLine = Annotated[str, Meta(max_length=MOST_CHARACTERS, pattern=ONE_LINE)]
"""A text of one line that a user gave."""
FileName = Annotated[str, Meta(pattern=r"\A[a-z]+/[A-Za-z0-9][A-Za-z0-9._-]{0,200}\Z")]
"""Name of a file in a dataset, such as train/40e2439b9c05a627-00000-0.arrow."""

BuildName = Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")]
WorkName = Annotated[
    str,
    Meta(
        pattern=r"\A(map|clustered|link|draw|prepared|similar"
        r"|rest-(v[0-9]{1,6}-)?of-(reduce|rest-(v[0-9]{1,6}-)?[0-9]{1,3}))-[0-9]{6,12}(s[0-9]{5,9})?\.arrow\Z"
    ),
]
"""Name of a work file that holds map output (a spill), clusters of records, members of clusters,
left-over sequences (a rest), or the content of a file that an option names."""

T = TypeVar("T")

_preparing: Final = threading.Lock()


def decoded(text: bytes | str, kind: type[T]) -> T:
    """Return a document as a value of type `kind`, such as a dataclass or a TypedDict.

    Keys that `kind` does not define are ignored.

    Raises:
        ValueError: the document is too large, not JSON, nested too deeply, or of another type. The
            message names the position of the error.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"larger than {MOST_BYTES >> 20} MiB")
    try:
        decoder: msgspec.json.Decoder[T] = prepared(kind)
        return decoder.decode(text)
    except RecursionError as error:
        raise ValueError(f"nested too deeply: {error}") from None


def prepared(kind: Any) -> Any:
    """Return the JSON decoder of a type. Only one thread at a time creates a decoder.

    msgspec examines a type when it is first used. If two threads examine a type at the same
    time, the process may crash (msgspec 0.22, CPython 3.11).
    """
    with _preparing:
        return _decoder(kind)


@functools.cache
def _decoder(kind: Any) -> Any:
    return msgspec.json.Decoder(kind)


def is_of_another_type(error: ValueError) -> bool:
    """Return whether an error means that a document is valid JSON, but of another type."""
    return isinstance(error, msgspec.ValidationError)
