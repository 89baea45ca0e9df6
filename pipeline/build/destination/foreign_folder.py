"""Refuse a folder of other files as a dataset's folder, as `git clone` does.

Otherwise, a build would write its files between those of the user. In a store, the check costs one
request, which lists at most _MOST_LISTED names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pipeline.build.destination.file_patterns import DATASET_FILE
from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.object_folder import ObjectFolder
from pipeline.storage.retries import RemoteStore, call_with_deadline
from pipeline.storage.urls import (
    file_system,
    forget_listings,
    is_missing,
    is_url,
    local_path,
    protocols,
)
from pipeline.storage.work_names import work_names
from schemas.errors import DatasetError, OptionError, SettingError
from schemas.manifest import MANIFEST_NAME, WORK
from schemas.shard import SPLITS
from schemas.text.folder_contents import HARMLESS, holds

_OWN_FOLDERS: Final = (*SPLITS, "records")
_TEMPORARY: Final = re.compile(r".+\.tmp|\.nfs\w+")
_MOST_LISTED: Final = 1_000
"""Maximum number of names of an S3 store that are looked at."""


def refuse_foreign_folder(out: str) -> None:
    """Refuse a folder, or a prefix of a store, that holds files which thdpack did not write.

    A missing or empty folder, a dataset, and an unfinished build are accepted. So are shards and
    records/ files that an earlier build has left behind. A prefix that the user may not list is
    accepted, too.

    Raises:
        OptionError: the folder holds other files. The message names some of them.
        DatasetError: the store does not answer.
    """
    folder = local_path(out)
    place = str(folder) if folder is not None else out.rstrip("/")
    foreign, complete = (
        (_foreign_files(folder), True) if folder is not None else _foreign_objects(place)
    )
    if foreign:
        raise OptionError(
            f"--out {place} is neither empty nor a dataset ({holds(foreign, complete=complete)}): "
            f"choose a new folder, such as {os.path.join(place, 'dataset').removeprefix('./')}"
        )


def _foreign_files(folder: Path) -> list[str]:
    """Return the names of the files and folders in a local folder that are not thdpack's."""
    if (folder / MANIFEST_NAME).exists() or (folder / WORK).is_dir() or not folder.is_dir():
        return []
    return [name for name in os.listdir(folder) if not _is_ours(folder / name)]


def _is_ours(path: Path) -> bool:
    """Return whether thdpack, or the system, may have created a file or folder."""
    if path.name in HARMLESS:
        return True
    if path.name not in _OWN_FOLDERS or not path.is_dir():
        return False
    if path.is_symlink():
        return True  # a later check refuses links
    names = (each.name for each in path.iterdir())
    return all(DATASET_FILE.fullmatch(name) or _TEMPORARY.fullmatch(name) for name in names)


def _foreign_objects(url: str) -> tuple[list[str], bool]:
    """Return the names under a prefix that are not thdpack's, and whether these are all."""
    names, complete = _listed(url)
    if MANIFEST_NAME in names or f"{WORK}/" in names:
        return [], True
    foreign = [name.rstrip("/") for name in names if not _is_our_object(url, name)]
    if foreign and not complete:  # the dataset may come later in the listing
        is_dataset = ObjectFolder(url).size(MANIFEST_NAME) is not None or bool(work_names(url))
        foreign = [] if is_dataset else foreign
    return foreign, complete


def _is_our_object(url: str, name: str) -> bool:
    """Return whether thdpack may have created an object or, if the name ends in a slash, a prefix.

    Args:
        url: URL of the prefix that holds the object.
    """
    folder = name.rstrip("/")
    if folder in HARMLESS:
        return True
    if folder not in _OWN_FOLDERS or folder == name:
        return False
    return all(DATASET_FILE.fullmatch(inner) for inner in _listed(f"{url}/{folder}")[0])


def _listed(url: str) -> tuple[list[str], bool]:
    """Return the names directly under a prefix, and whether these are all. A name that stands for
    several objects ends in a slash. If the user may not list the prefix, there are no names.

    Raises:
        DatasetError: the store does not answer.
    """
    fs, path = file_system(url)

    def on_s3() -> tuple[list[str], bool]:
        bucket, _, key = path.partition("/")
        prefix = f"{key}/" if key else ""
        answer = fs.call_s3(
            "list_objects_v2", Bucket=bucket, Prefix=prefix, Delimiter="/", MaxKeys=_MOST_LISTED
        )
        objects = [each["Key"] for each in answer.get("Contents", ())]
        folders = [each["Prefix"] for each in answer.get("CommonPrefixes", ())]
        return _below(prefix, [*objects, *folders]), not answer.get("IsTruncated")

    def elsewhere() -> tuple[list[str], bool]:
        forget_listings(fs, url)
        names = [
            f"{entry['name'].rstrip('/')}{'/' * (entry['type'] == 'directory')}"
            for entry in fs.ls(path, detail=True)
        ]
        return _below(f"{path.rstrip('/')}/", names), True

    look = on_s3 if "s3" in protocols(fs) else elsewhere
    try:
        return RemoteStore(url, INTERRUPTED).with_retries(
            "list of files", lambda: call_with_deadline(look, 0)
        )
    except SettingError:
        raise
    except DatasetError as error:
        if isinstance(error.__cause__, PermissionError) or is_missing(error.__cause__):
            return [], True
        raise


def _below(prefix: str, names: Iterable[str]) -> list[str]:
    """Return names without the prefix. Leave out the prefix itself, for which programs that show a
    store as folders create an empty object."""
    return [short for name in names if (short := name.removeprefix(prefix))]


def warning_of_inputs(out: str, inputs: Iterable[str]) -> str:
    """Return a warning if a dataset's URL is the root of a bucket that holds an input; else "".

    Args:
        inputs: URLs of the inputs.
    Raises:
        OptionError: the URL is not a root, and holds an input.
    """
    prefix = out.rstrip("/") + "/"
    inside = next((url for url in inputs if is_url(out) and url.startswith(prefix)), None)
    if inside is None:
        return ""
    if prefix.partition("://")[2].count("/") > 1:
        raise OptionError(
            f"--out {out} holds an input, {inside}: choose a new prefix, such as {prefix}dataset"
        )
    return (
        f"--out {out} is the root of an S3 bucket that also holds inputs: {MANIFEST_NAME}, "
        "records/ and the splits will lie beside them. To separate them, use a prefix such as "
        f"{prefix}dataset"
    )
