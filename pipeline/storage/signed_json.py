"""JSON work files that are read back: markers, the task list, what the map stage found.

Each carries the xxh3_128 of its content, and is read by type (msgspec): one that is damaged, of another version or made by somebody else is not believed,
and what it says never leads to a file outside the dataset's own folders.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
import xxhash

from schemas.untrusted_json import decoded

T = TypeVar("T")


class _Signed(msgspec.Struct):
    """What every such file is."""

    xxh3_128: str
    noted: msgspec.Raw


def signed(values: Any) -> bytes:
    """A file's content: values, which are JSON, and their hash."""
    noted = json.dumps(values, sort_keys=True).encode()
    return b'{"xxh3_128": "%s", "noted": %s}' % (xxhash.xxh3_128_hexdigest(noted).encode(), noted)


def read_signed(content: bytes | None, kind: type[T]) -> T | None:
    """What `signed` was given, as `kind`; None if there is no file, or it is damaged, or holds something else."""
    if content is None:
        return None
    try:
        found = decoded(content, _Signed)
        noted = bytes(found.noted)
        return decoded(noted, kind) if xxhash.xxh3_128_hexdigest(noted) == found.xxh3_128 else None
    except ValueError:
        return None
