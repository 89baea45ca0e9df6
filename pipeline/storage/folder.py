"""The one interface through which the offline stage reads and writes a dataset and its work in progress.

A folder is on a local disk (`LocalFolder`) or a prefix of an object store (`pipeline.storage.object_folder.ObjectFolder`). Either way a file
appears under its name complete or not at all. Folders are plain data and cross to another process or machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pipeline.storage.atomic_write import Finisher, HashingWriter

if TYPE_CHECKING:
    import pyarrow as pa  # the driver of a build starts without it


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes [begin, end) of a file; all of it without an end."""

    name: str
    begin: int = 0
    end: int | None = None


class Folder(Protocol):
    """Files by name, `/` between the folders in it.

    local: whether reading a little here and there costs nothing.
    """

    @property
    def local(self) -> bool: ...

    def where(self, name: str = "") -> str:
        """A file's path or URL, for messages."""
        ...

    def sub(self, name: str) -> Folder:
        """A folder in it, which need not exist."""
        ...

    def written(
        self, name: str, *, durable: bool = True, finisher: Finisher | None = None
    ) -> AbstractContextManager[HashingWriter]:
        """Write a file; it is there when the context ends without an error, or, given a finisher, when that one's does.

        durable: it has to survive a power cut, once the commit says that it matters.
        Raises:
            BuildError: it cannot be written.
        """
        ...

    def sync(self, names: Sequence[str]) -> None:
        """Make files that were written without `durable` survive a power cut."""
        ...

    def content(self, name: str) -> bytes | None:
        """A small file's bytes; None if it is not there."""
        ...

    def parts(self, wanted: Sequence[Part]) -> list[pa.Buffer]:
        """Parts of files, many at once.

        Raises:
            ThdpackError: a file is not there or cannot be read.
        """
        ...

    def buffer(self, name: str) -> pa.Buffer:
        """All of a file: mapped, or in memory.

        Raises:
            FileNotFoundError: it is not there.
            OSError, ThdpackError: it cannot be read.
        """
        ...

    def size(self, name: str) -> int | None:
        """A file's bytes; None if it is not there."""
        ...

    def version_tag(self, name: str) -> str | None:
        """What tells two versions of a file apart without reading it; None if it is not there."""
        ...

    def written_version_tag(self, name: str) -> str | None:
        """The version_tag of a file that this process has just written."""
        ...

    def holds(self, name: str, size: int, xxh3_128: str, version_tag: str | None) -> bool:
        """Whether a file is still the one that was written: `version_tag` is what it had then."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...
