"""Open a folder by its path or URL."""

from __future__ import annotations

from pathlib import Path

from pipeline.storage.folder import Folder
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.object_folder import ObjectFolder
from pipeline.storage.urls import local_path


def folder_of(url: str | Path, *, scratch: Path | None = None) -> Folder:
    """Return the folder of a path or URL.

    Args:
        scratch: folder for unfinished files, used only if the returned folder is local. With None,
            the returned folder holds the unfinished files.
    Raises:
        InputError: no file system is installed for the protocol.
    """
    path = local_path(str(url))
    if path is not None:
        return LocalFolder(path, scratch or path)
    return ObjectFolder(str(url).rstrip("/"))
