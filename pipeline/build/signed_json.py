"""JSON work files that are read back: markers, the task list, what the map stage found.

Each carries the xxh3_128 of its content, and is read by type (msgspec): one that is damaged, of another version or made by somebody else is not believed,
and what it says never leads to a file outside the dataset's own folders.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, TypeVar

import msgspec
import xxhash

from schemas.untrusted_json import decoded

BuildName = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]
WorkName = Annotated[str, msgspec.Meta(pattern=r"\A(map|rest-of-reduce|rest-of-rest-[0-9]{1,3})-[0-9]{6,12}\.arrow\Z")]
"""A spill's or a rest's name, in the work folder."""
_STEM: Final = r"[0-9a-f]{16}-([0-9]{5,12}|rest([0-9]{1,3}x[0-9]{5,12})?)"
ShardName = Annotated[str, msgspec.Meta(pattern=rf"\A(train|valid)/{_STEM}-[0-9]{{1,12}}\.arrow\Z")]
RecordsName = Annotated[str, msgspec.Meta(pattern=rf"\Arecords/{_STEM}\.parquet\Z")]

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
