"""Writing an object only if nobody else has written it since: what makes one of two writers win."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipeline.storage import marks_of

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_LOST: Final = (409, 412)
"""Conflict with a write at the same time; precondition failed."""
_UNKNOWN: Final = (400, 501)
"""What stores answer that know no conditional writes."""


def put_if(fs: AbstractFileSystem, path: str, content: bytes, mark: str | None) -> bool:
    """Write an object if what is there is still what `mark` says (None: nothing); whether it was.

    On s3 the store itself decides, in the moment of writing. A store that knows no conditions, and gs when an object is replaced, is asked right before.
    """
    fs.invalidate_cache()
    found = _found(fs, path)
    if (found and marks_of(found)) != mark:
        return False
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    if "s3" in protocols:
        condition = {"IfNoneMatch": "*"} if found is None else {"IfMatch": found["ETag"]}
        try:
            return _put_s3(fs, path, content, condition)
        except OSError as error:
            if _status(error) not in _UNKNOWN:
                raise
    if found is None and "gs" in protocols:
        try:
            fs.pipe_file(path, content, mode="create")
        except FileExistsError:
            return False
        return True
    fs.pipe_file(path, content)
    return True


def _found(fs: AbstractFileSystem, path: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = fs.info(path)
    except FileNotFoundError:
        return None
    return found


def _put_s3(fs: AbstractFileSystem, path: str, content: bytes, condition: dict[str, str]) -> bool:
    bucket, key, _ = fs.split_path(path)
    try:
        fs.call_s3("put_object", Bucket=bucket, Key=key, Body=content, **condition)
    except OSError as error:
        if _status(error) in _LOST:
            return False
        raise
    return True


def _status(error: BaseException) -> int | None:
    """The HTTP status behind an error of s3fs."""
    response = getattr(error.__cause__, "response", None)
    metadata = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
    status: int | None = metadata.get("HTTPStatusCode")
    return status
