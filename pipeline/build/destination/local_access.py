"""Check that a build may write to a local folder. A dry run makes these checks, too."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from pipeline.build.build_plan import PLAN
from pipeline.storage.atomic_write import try_folder
from schemas.errors import BuildError
from schemas.manifest import MANIFEST_NAME, WORK
from schemas.records import RETIRED
from schemas.shard import SPLITS

_FOLDERS: Final = (WORK, *SPLITS, "records", RETIRED)
"""Folders that builds create in a dataset's folder."""


def refuse_unwritable(folder: Path) -> None:
    """Refuse a dataset's folder that cannot be created or written. Nothing stays written.

    Raises:
        BuildError: the folder cannot be created or written, or a folder inside it is a link.
    """
    refuse_links(folder)
    try:
        try_folder(folder)
    except OSError as error:
        raise cannot_write(folder, error) from error


def refuse_links(folder: Path) -> None:
    """Refuse folders that are links, because a build would remove files behind the link.

    Raises:
        BuildError: a folder is a link.
    """
    for inner in (folder / name for name in _FOLDERS):
        if inner.is_symlink():
            raise BuildError(
                f"{inner} is a link, and a build must not write or remove files behind "
                f"a link: remove the link, or {_another_folder(folder)}"
            )


def cannot_write(folder: Path, error: OSError) -> BuildError:
    """Return the error for a dataset's folder that cannot be created or written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    exists = os.path.exists(folder)
    remedy = "make room, or " if full else "make the folder writable, or " if exists else ""
    return BuildError(
        f"cannot write to {folder}: {error.strerror}; {remedy}{_another_folder(folder)}"
    )


def _another_folder(folder: Path) -> str:
    """Return advice to use another folder. Only commands that begin a dataset have an --out."""
    if os.path.exists(folder / MANIFEST_NAME):
        return "use a copy of the dataset"
    if os.path.exists(folder / PLAN):
        return "run `thdpack plan-tasks` again with another --out"
    return "choose another --out"
