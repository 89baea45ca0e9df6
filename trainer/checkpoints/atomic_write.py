"""Write files that survive a power cut. A file is written under another name, fsynced and renamed.
Then the folder of the file is fsynced.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pipeline.storage.atomic_write import sync_folder

PARTIAL: Final = ".partial"
"""Suffix of the name of an incomplete file or folder."""


def write(path: Path, content: str | bytes) -> None:
    """Write a file atomically. When this returns, the file and its name are on the disk.

    After a crash, `path` has either the new content or the old content.
    """
    partial = path.with_name(path.name + PARTIAL)
    with open(partial, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    publish(partial, path)


def publish(partial: Path, path: Path) -> None:
    """Rename `partial` to `path`, and fsync the folder. The content of `partial` must already be on
    the disk.
    """
    os.replace(partial, path)
    sync_folder(path.parent)
