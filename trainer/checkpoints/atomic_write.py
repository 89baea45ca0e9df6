"""Files that survive a power cut: written under another name, fsynced and renamed; then their
folder is fsynced.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pipeline.storage.atomic_write import sync_folder

PARTIAL: Final = ".partial"
"""Ending of the name of a file or folder that is not complete."""


def write(path: Path, content: str | bytes) -> None:
    """Write a file that is on the disk, under its name, when this returns.

    After a crash the file is either complete or unchanged.
    """
    partial = path.with_name(path.name + PARTIAL)
    with open(partial, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    publish(partial, path)


def publish(partial: Path, path: Path) -> None:
    """Rename a file or folder whose content is on the disk, and put the new name on the disk."""
    os.replace(partial, path)
    sync_folder(path.parent)
