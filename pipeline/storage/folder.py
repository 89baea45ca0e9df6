"""The one interface through which the offline stage reads and writes a dataset and its work in progress.

A folder is on a local disk (`LocalFolder`) or a prefix of an object store (`pipeline.storage.object_folder.ObjectFolder`). Either way a file
appears under its name complete or not at all. Folders are plain data and cross to another process or machine.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipeline.storage.atomic_write import Finisher, HashingWriter, sync_files, written_atomically
from pipeline.storage.retries import local_path
from pipeline.storage.urls import hash_file
from schemas.errors import InputError

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

    def written(self, name: str, *, durable: bool = True, finisher: Finisher | None = None) -> AbstractContextManager[HashingWriter]:
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

    def mark(self, name: str) -> str | None:
        """What tells two versions of a file apart without reading it; None if it is not there."""
        ...

    def mark_of_written(self, name: str) -> str | None:
        """The mark of a file that this process has just written."""
        ...

    def holds(self, name: str, size: int, xxh3_128: str, mark: str | None) -> bool:
        """Whether a file is still the one that was written: `mark` is what it had then."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder of a local disk.

    scratch: where unfinished files lie; on the same file system.
    """

    path: Path
    scratch: Path

    @property
    def local(self) -> bool:
        return True

    def where(self, name: str = "") -> str:
        return str(self.path / name)

    def sub(self, name: str) -> LocalFolder:
        return LocalFolder(self.path / name, self.scratch)

    def written(self, name: str, *, durable: bool = True, finisher: Finisher | None = None) -> AbstractContextManager[HashingWriter]:
        return written_atomically(self.path / name, scratch=self.scratch, durable=durable, finisher=finisher)

    def sync(self, names: Sequence[str]) -> None:
        sync_files([self.path / name for name in names])

    def content(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def parts(self, wanted: Sequence[Part]) -> list[pa.Buffer]:
        import pyarrow as pa

        found = []
        for part in wanted:
            with pa.memory_map(self.where(part.name)) as file:
                file.seek(min(part.begin, file.size()))  # a file that was cut short gives fewer bytes
                found.append(file.read_buffer(None if part.end is None else part.end - part.begin))  # outlives the file
        return found

    def buffer(self, name: str) -> pa.Buffer:
        import pyarrow as pa

        with pa.memory_map(self.where(name)) as file:  # the mapping outlives the file, its descriptor does not
            return file.read_buffer()

    def size(self, name: str) -> int | None:
        path = self.path / name
        return path.stat().st_size if path.is_file() else None

    def mark(self, name: str) -> str | None:
        try:
            found = (self.path / name).stat()
        except FileNotFoundError:
            return None
        return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}"

    def mark_of_written(self, name: str) -> str | None:
        return self.mark(name)

    def holds(self, name: str, size: int, xxh3_128: str, mark: str | None) -> bool:
        """By its content: after a power cut, size and time may be right and the bytes not."""
        path = self.path / name
        try:
            found = path.lstat()  # a link may lead anywhere, and never is what was written
            return stat.S_ISREG(found.st_mode) and found.st_size == size and hash_file(path) == (size, xxh3_128)
        except (FileNotFoundError, InputError):
            return False

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


def folder_of(url: str | Path, *, scratch: Path | None = None) -> Folder:
    """The folder that a path or URL names.

    scratch: where a local folder's unfinished files lie; the folder itself unless given.
    Raises:
        InputError: no file system is installed for the protocol.
    """
    path = local_path(str(url))
    if path is not None:
        return LocalFolder(path, scratch or path)
    from pipeline.storage.object_folder import ObjectFolder

    return ObjectFolder(str(url).rstrip("/"))
