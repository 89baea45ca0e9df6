"""The interface of an inbox, and the rules for names in it.

A file's name is its path below the inbox. INBOX/taken/ and INBOX/rejected/ belong to the service.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

TAKEN: Final = "taken"
REJECTED: Final = "rejected"
OWN_FOLDERS: Final = (TAKEN, REJECTED)
CHECKSUMS: Final = (".sha256", ".md5")
"""Suffixes of checksum files: a dot, and the name of the algorithm in hashlib."""
ERROR_SUFFIX: Final = ".error.txt"
_LONGEST_NAME: Final = 255
"""Maximum number of bytes in a part of a path on Linux."""
_TEMPORARY: Final = re.compile(
    r"\..*|.*(\.(tmp|temp|part|partial|crdownload|filepart|swp)|~)", re.S
)
"""Names that programs give to unfinished files: rsync (.NAME.XXXXXX), browsers, curl, editors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A file in the inbox.

    name: path below the inbox
    bytes: size in bytes
    version: tag that changes when the content changes
    changed: Unix time of the last change in seconds
    refusal: reason why the file can never be taken, such as that it is a link; "" if there is none
    """

    name: str
    bytes: int
    version: str
    changed: float
    refusal: str = ""


class Inbox(Protocol):
    """A folder or prefix whose files are taken."""

    def scan(self) -> dict[str, Candidate]:
        """Return all files by name, except temporary files and those in taken/ and rejected/.

        Raises:
            RetryError: the inbox cannot be listed now.
        """
        ...

    def where(self, name: str = "") -> str:
        """Return the path or URL of a file, as append and messages name it."""
        ...

    def version(self, name: str) -> str | None:
        """Return the version of a file; None if it is missing.

        Raises:
            RetryError: the inbox cannot be reached now.
        """
        ...

    def read(self, name: str, on_block: Callable[[bytes], object]) -> None:
        """Read a whole file in blocks.

        Raises:
            FileNotFoundError: the file has vanished.
            PermissionError: this user may not read the file.
            RetryError: the inbox cannot be reached now.
        """
        ...

    def move(self, name: str, version: str, folder: str, reason: str = "") -> str | None:
        """Move a file into a folder of the inbox, under a free name; return its new name.

        Return None if the file is missing or has another version. A reason is written first, into
        a text file beside the new name.

        Raises:
            RetryError: the file cannot be moved now.
        """
        ...

    def sync(self, names: Iterable[str]) -> None:
        """Make moved files survive a power cut under their new names.

        Raises:
            RetryError: a folder cannot be synced now.
        """
        ...


def is_temporary(name: str) -> bool:
    """Return whether a file is unfinished or hidden, judging by its name and its folders' names."""
    return any(_TEMPORARY.fullmatch(part) for part in name.split("/"))


def is_own(name: str) -> bool:
    """Return whether a name lies in a folder of the service."""
    return name.partition("/")[0] in OWN_FOLDERS


def free_name(name: str, is_used: Callable[[str], bool]) -> str:
    """Return a name, with a suffix such as ~1 if the name is in use."""
    number, free = 0, name
    while is_used(free):
        number += 1
        free = with_suffix(name, f"~{number}")
    return free


def with_suffix(name: str, suffix: str) -> str:
    """Return a name with a suffix. A name that then has more than 255 bytes loses its beginning,
    because its end may be a suffix that makes it unique."""
    folder, slash, last = name.rpartition("/")
    if len(os.fsencode(last + suffix)) > _LONGEST_NAME:
        kept = os.fsencode(last)[len(suffix) - _LONGEST_NAME :]
        last = kept.decode(errors="ignore")  # without a part of a character
    return f"{folder}{slash}{last}{suffix}"
