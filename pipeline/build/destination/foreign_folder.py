"""Refuse a folder of other files as a dataset's folder, as `git clone` does.

Otherwise, a build would write its files between those of the user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pipeline.build.destination.file_patterns import DATASET_FILE
from pipeline.storage.urls import is_url
from schemas.errors import OptionError
from schemas.manifest import MANIFEST_NAME, WORK
from schemas.shard import SPLITS
from schemas.text.folder_contents import HARMLESS, holds

_OWN_FOLDERS: Final = (*SPLITS, "records")
_TEMPORARY: Final = re.compile(r".+\.tmp|\.nfs\w+")


def refuse_foreign_folder(folder: Path) -> None:
    """Refuse a folder that holds files which thdpack did not write.

    A missing or empty folder, a dataset, and an unfinished build are accepted. So are shards and
    records/ files that an earlier build has left behind.

    Raises:
        OptionError: the folder holds other files. The message names some of them.
    """
    if (folder / MANIFEST_NAME).exists() or (folder / WORK).is_dir() or not folder.is_dir():
        return
    foreign = [name for name in os.listdir(folder) if not _is_ours(folder / name)]
    if foreign:
        raise OptionError(
            f"--out {folder} is neither empty nor a dataset ({holds(foreign)}): choose a new "
            f"folder, such as {folder / 'dataset'}"
        )


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
