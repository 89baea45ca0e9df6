"""Conditional writes of objects: if two writers compete, exactly one wins."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pipeline.storage.urls import answer_of, protocols, version_tag_of

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_LOST: Final = 412
"""HTTP status "precondition failed". Status 409 is different: it means a conflict with a write that
may still fail, so AWS asks for a retry."""


def put_if(fs: AbstractFileSystem, path: str, content: bytes, version_tag: str | None) -> bool:
    """Write an object if it still has the expected version; return whether it was written.

    On s3, the store itself checks the condition during the write. On a store without conditional
    writes, and on gs when an object is replaced, the version is compared just before the write.

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
    """Return whether an error says that the store does not support the condition's header.

    Any other error may be temporary. After a temporary error, an unconditional write would be
    wrong.
    """
    status, code, message = answer_of(error)
    return (
        status == 501
        or code == "NotImplemented"
        or (status == 400 and re.search("If-(None-)?Match", message, re.IGNORECASE) is not None)
    )
