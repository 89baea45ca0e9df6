"""JSON work files of a build: the task list, markers of finished tasks, results of the map stage.

Each file holds the xxh3_128 of its content. msgspec decodes the content into a type. A reader
ignores a file that is damaged, or whose content does not match the type, for example because
another version of thdpack wrote it. The types allow no file names that point outside the dataset's
own folders.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
import xxhash

from schemas.untrusted_json import decoded

T = TypeVar("T")


class _Signed(msgspec.Struct):
    """Layout of a JSON work file."""

    xxh3_128: str
    noted: msgspec.Raw


def signed(values: Any) -> bytes:
    """Return the content of a file: JSON values and their hash."""
    content = json.dumps(values, sort_keys=True).encode()
    digest = xxhash.xxh3_128_hexdigest(content).encode()
    return b'{"xxh3_128": "%s", "noted": %s}' % (digest, content)


def read_signed(content: bytes | None, kind: type[T]) -> T | None:
    """Return a file's values as `kind`; None if the file is missing, damaged or of another type."""
    if content is None:
        return None
    try:
        found = decoded(content, _Signed)
        content = bytes(found.noted)
        intact = xxhash.xxh3_128_hexdigest(content) == found.xxh3_128
        return decoded(content, kind) if intact else None
    except ValueError:
        return None
