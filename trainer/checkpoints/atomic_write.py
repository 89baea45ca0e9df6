"""Files that survive a power cut: written whole under another name, fsynced, renamed, and their folder
fsynced."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

PARTIAL: Final = ".partial"
"""Ending of a file or folder that is not whole."""


def write(path: Path, content: str | bytes) -> None:
    """Write a file that is on the disk, under its name, when this returns; after a crash it is whole
    or as before."""
    partial = path.with_name(path.name + PARTIAL)
    with open(partial, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    publish(partial, path)


def publish(partial: Path, path: Path) -> None:
    """Rename what is on the disk already, and put the new name on the disk."""
    os.replace(partial, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Put a file's content, or a folder's names, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
