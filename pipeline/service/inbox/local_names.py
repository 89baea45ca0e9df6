"""Free names in taken/ and rejected/ of a local inbox, and the reasons of rejected files."""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path

from pipeline.service.inbox.inbox import ERROR_SUFFIX, free_name, with_suffix


def free_target(root: Path, name: str, reason: str) -> str:
    """Return a name below `root` under which a file can be moved there.

    A part of the name gets a suffix such as ~1 in two cases: it would replace another file, or it
    is a folder but `root` has a file or a link of that name. With a reason, the name of the text
    file beside the new name must be free, too, or that file must hold this reason.
    """
    *folders, last = name.split("/")
    here = root
    for folder in folders:
        here /= free_name(folder, partial(_is_no_folder, here))
    here /= free_name(last, lambda other: _is_used(here / other, reason))
    return str(here.relative_to(root))


def write_reason(target: Path, reason: str) -> None:
    """Write the reason into a text file beside a rejected file, unless that file has it already."""
    content = _encoded(reason)
    path = _reason_path(target)
    if _holds(path, content):
        return
    # do not follow a link, and do not overwrite a file that a user delivered
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
    except OSError:
        path.unlink()
        raise


def _reason_path(target: Path) -> Path:
    return target.with_name(with_suffix(target.name, ERROR_SUFFIX))


def _encoded(reason: str) -> bytes:
    return f"{reason}\n".encode(errors="backslashreplace")


def _is_used(target: Path, reason: str) -> bool:
    if os.path.lexists(target):
        return True
    path = _reason_path(target)
    return bool(reason) and os.path.lexists(path) and not _holds(path, _encoded(reason))


def _is_no_folder(root: Path, name: str) -> bool:
    path = root / name
    return os.path.lexists(path) and not stat.S_ISDIR(os.lstat(path).st_mode)


def _holds(path: Path, content: bytes) -> bool:
    """Return whether a path is a regular file with this content."""
    if not os.path.lexists(path) or not stat.S_ISREG(os.lstat(path).st_mode):
        return False
    return path.stat().st_size == len(content) and path.read_bytes() == content
