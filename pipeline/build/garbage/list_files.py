"""List the files of a dataset's folder, with the times of their last change."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from pipeline.storage.folder import Folder
from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.retries import RemoteStore, call_with_deadline
from pipeline.storage.urls import file_system
from schemas.errors import DatasetError

_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")
"""Keys of the time of the last change, in the entries of fsspec's file systems."""


def change_times(out: Folder, folders: tuple[str, ...]) -> dict[str, tuple[int, float]]:
    """Return size in bytes and time of the last change of each file, by name.

    Args:
        out: the dataset's folder.
        folders: names of the sub-folders to list. Links are left out.
    Returns:
        Sizes, and times in seconds since 1970. If a store reports no time, the time is infinity.
    Raises:
        DatasetError: the folder cannot be listed.
    """
    found: dict[str, tuple[int, float]] = {}
    for folder in folders:
        list_one = _local if isinstance(out, LocalFolder) else _remote
        found |= {f"{folder}/{name}": facts for name, facts in list_one(out.sub(folder)).items()}
    return found


def _local(folder: Folder) -> dict[str, tuple[int, float]]:
    path = folder.where().rstrip("/")
    try:
        if os.path.islink(path):
            return {}
        with os.scandir(path) as entries:
            files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
            states = [(entry.name, entry.stat(follow_symlinks=False)) for entry in files]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DatasetError(f"{path}: cannot be listed: {error.strerror}") from error
    return {name: (state.st_size, state.st_mtime) for name, state in states}


def _remote(folder: Folder) -> dict[str, tuple[int, float]]:
    fs, path = file_system(folder.where())

    def find() -> dict[str, Any]:
        fs.invalidate_cache()
        listed: dict[str, Any] = call_with_deadline(lambda: fs.find(path, detail=True), 0)
        return listed

    listed = RemoteStore(folder.where(), INTERRUPTED).with_retries(folder.where(), find)
    root = path.rstrip("/") + "/"
    return {
        name.removeprefix(root): (int(info["size"] or 0), _time_of(info))
        for name, info in listed.items()
    }


def _time_of(info: dict[str, Any]) -> float:
    """Return the time of an object's last change in seconds since 1970; infinity if unknown."""
    for key in _TIMES:
        value = info.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            return datetime.fromisoformat(value).timestamp()
    return float("inf")
