"""List the objects under a prefix of a store."""

from __future__ import annotations

from typing import Any

from pipeline.service.errors import RetryError
from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.retries import ClosedError, RemoteStore, call_with_deadline
from pipeline.storage.urls import file_system
from schemas.errors import ThdpackError

_LISTING_BYTES = 600 << 20
"""A listing has the same deadline as a transfer of this many bytes."""


def list_objects(url: str) -> dict[str, dict[str, Any]]:
    """Return the entries of all objects under a prefix, by their names below the prefix.

    Raises:
        RetryError: the store cannot be reached now.
    """
    try:
        fs, path = file_system(url)

        def find() -> dict[str, dict[str, Any]]:
            fs.invalidate_cache()
            found: dict[str, dict[str, Any]] = call_with_deadline(
                lambda: fs.find(path, detail=True), _LISTING_BYTES
            )
            return found

        found = RemoteStore(url, INTERRUPTED).with_retries("list of files", find)
    except (ThdpackError, ClosedError) as error:
        raise RetryError(str(error)) from error
    root = path.rstrip("/") + "/"
    return {
        name.removeprefix(root): info
        for name, info in found.items()
        if info["type"] == "file" and name.startswith(root) and not name.endswith("/")
    }
