"""Conditional writes of objects: if two writers compete, exactly one wins."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pipeline.storage.s3.faults import answer_of
from pipeline.storage.urls import protocols, version_tag_of

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_LOST: Final = 412
"""HTTP status "precondition failed": the object does not have the expected version. Status 409 only
means that another write is in progress. That write may still fail, so AWS asks for a retry."""


def put_if(fs: AbstractFileSystem, path: str, content: bytes, version_tag: str | None) -> bool:
    """Write an object if it still has the expected version; return whether it was written.

    An s3 store that supports conditional writes checks the condition during the write. A gs store
    checks the condition only for a new object. In all other cases, the condition is checked only
    just before the write.

    Args:
        version_tag: tag of the expected version; None if no object should exist.
    """
    fs.invalidate_cache()
    found = _found(fs, path)
    if (found and version_tag_of(found)) != version_tag:
        return False
    if "s3" in protocols(fs):
        condition = {"IfNoneMatch": "*"} if found is None else {"IfMatch": found["ETag"]}
        try:
            return _put_s3(fs, path, content, condition)
        except OSError as error:
            if not _knows_no_conditions(error):
                raise
    if found is None and "gs" in protocols(fs):
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
        status, code, _ = answer_of(error)
        if status == _LOST or code == "NoSuchKey":  # the object to replace no longer exists
            return False
        raise
    return True


def _knows_no_conditions(error: OSError) -> bool:
    """Return whether an error says that the store does not support conditional writes.

    After any other error, the caller must not write without a condition: the error may be
    temporary.
    """
    status, code, message = answer_of(error)
    return (
        status == 501
        or code == "NotImplemented"
        or (status == 400 and re.search("If-(None-)?Match", message, re.IGNORECASE) is not None)
    )
