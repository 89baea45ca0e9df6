"""The interface through which the offline stage reads and writes datasets and work in progress.

A folder is on a local disk (`LocalFolder`) or a prefix of an object store (`ObjectFolder`). In
both, a file appears under its name complete or not at all. Folders are plain data, which can be
sent to another process or machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pipeline.storage.atomic_write import Finisher, HashingWriter

if TYPE_CHECKING:
    # not imported at run time, because the driver of a build starts without it
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes [begin, end) of a file; up to its end if `end` is None."""

    name: str
    begin: int = 0
    end: int | None = None


class Folder(Protocol):
    """Files by name, with `/` between folders.

    local: whether small reads at many places are cheap.
    """

    @property
    def local(self) -> bool: ...

    def where(self, name: str = "") -> str:
        """Return a file's path or URL, for messages."""
        ...

    def sub(self, name: str) -> Folder:
        """Return a folder inside this one, which need not exist."""
        ...

    def written(
        self, name: str, *, durable: bool = True, finisher: Finisher | None = None
    ) -> AbstractContextManager[HashingWriter]:
        """Write a file, which exists when the context ends without an error.

        Args:
            durable: the file must survive a power cut after the commit.
            finisher: the file exists when the finisher's context ends instead.
        Raises:
            BuildError: it cannot be written.
        """
        ...

    def sync(self, names: Sequence[str]) -> None:
        """Make files that were written without `durable` survive a power cut."""
        ...

    def content(self, name: str) -> bytes | None:
        """Return a small file's bytes; None if it is missing."""
        ...

    def parts(self, wanted: Sequence[Part]) -> list[pa.Buffer]:
        """Return parts of files, many at once.

        Raises:
            ThdpackError: a file is missing or cannot be read.
        """
        ...

    def buffer(self, name: str) -> pa.Buffer:
        """Return all of a file, mapped or in memory.

        Raises:
            FileNotFoundError: it is missing.
            OSError, ThdpackError: it cannot be read.
        """
        ...

    def size(self, name: str) -> int | None:
        """Return a file's size in bytes; None if it is missing."""
        ...

    def version_tag(self, name: str) -> str | None:
        """Return a tag that changes with the file, without reading it; None if it is missing."""
        ...

    def written_version_tag(self, name: str) -> str | None:
        """Return the version tag of a file that this process has just written."""
        ...

    def holds(self, name: str, size: int, xxh3_128: str, version_tag: str | None) -> bool:
        """Whether a file is still the one that was written with this `version_tag`."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        ...
