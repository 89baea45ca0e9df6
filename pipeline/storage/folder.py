"""The interface through which builds read and write datasets and intermediate files.

A folder is on a local disk (`LocalFolder`) or is a prefix of an object store (`ObjectFolder`). A
file appears under its name only when the file is complete. Folders are plain data, and can be
sent to another process or machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pipeline.storage.atomic_write import Finisher, HashingWriter

if TYPE_CHECKING:
    # not imported at run time, so that the driver process of a build starts quickly
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes [begin, end) of a file. If `end` is None, the part ends with the file."""

    name: str
    begin: int = 0
    end: int | None = None


class Folder(Protocol):
    """A folder of files. A file's name includes its sub-folders, each followed by `/`.

    local: True if small reads at many positions are cheap.
    """

    @property
    def local(self) -> bool: ...

    def where(self, name: str = "") -> str:
        """Return the path or URL of a file, or of this folder if `name` is "", for messages."""
        ...

    def sub(self, name: str) -> Folder:
        """Return a folder inside this folder. It need not exist yet."""
        ...

    def written(
        self,
        name: str,
        *,
        durable: bool = True,
        write_back: bool = False,
        finisher: Finisher | None = None,
    ) -> AbstractContextManager[HashingWriter]:
        """Yield a writer for a file. The file appears when the context ends without an error.

        Args:
            durable: True if the file must survive a power cut as soon as it appears.
            write_back: True if the caller syncs the file later. The system then begins to write the
                file to the disk early, while the caller does other work.
            finisher: if given, the file appears when the finisher's context ends.
        Raises:
            BuildError: the file cannot be written.
        """
        ...

    def sync(self, names: Sequence[str]) -> None:
        """Sync files that were written without `durable`, so that they survive a power cut."""
        ...

    def content(self, name: str) -> bytes | None:
        """Return a small file's bytes; None if it is missing."""
        ...

    def parts(self, wanted: Sequence[Part]) -> list[pa.Buffer]:
        """Return parts of files, in the order of `wanted`. From a store, fetch parts in parallel.

        Raises:
            ThdpackError: a file is missing or cannot be read.
        """
        ...

    def buffer(self, name: str) -> pa.Buffer:
        """Return a whole file, mapped or in memory.

        Raises:
            FileNotFoundError: the file is missing.
            OSError, ThdpackError: the file cannot be read.
        """
        ...

    def size(self, name: str) -> int | None:
        """Return a file's size in bytes; None if it is missing."""
        ...

    def version_tag(self, name: str) -> str | None:
        """Return a tag that changes when the file changes; None if the file is missing.

        The file is not read.
        """
        ...

    def written_version_tag(self, name: str) -> str | None:
        """Return the version tag of a file that this process has just written."""
        ...

    def holds(self, name: str, size: int, xxh3_128: str, version_tag: str | None) -> bool:
        """Return whether a file still has the size, hash and version tag that a build recorded."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        ...
