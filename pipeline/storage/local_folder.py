"""A folder of a local disk."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.storage.atomic_write import Finisher, HashingWriter, sync_files, written_atomically
from pipeline.storage.file_hash import hash_file
from pipeline.storage.folder import Part
from schemas.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa  # only for types, as in pipeline.storage.folder


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder of a local disk.

    scratch: folder for unfinished files, on the same file system as `path`
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

    def written(
        self,
        name: str,
        *,
        durable: bool = True,
        write_back: bool = False,
        finisher: Finisher | None = None,
    ) -> AbstractContextManager[HashingWriter]:
        return written_atomically(
            self.path / name,
            scratch=self.scratch,
            durable=durable,
            write_back=write_back,
            finisher=finisher,
        )

    def sync(self, names: Sequence[str]) -> None:
        sync_files([self.path / name for name in names])

    def content(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def parts(self, wanted: Sequence[Part]) -> list[pa.Buffer]:
        import pyarrow as pa

        found = []
        for part in wanted:
            with pa.memory_map(self.where(part.name)) as file:
                # `begin` may be beyond the end of a truncated file; the buffer is then shorter
                file.seek(min(part.begin, file.size()))
                size = None if part.end is None else part.end - part.begin
                # the buffer stays valid after the file is closed
                found.append(file.read_buffer(size))
        return found

    def buffer(self, name: str) -> pa.Buffer:
        import pyarrow as pa

        # the mapping stays valid after the file's descriptor is closed
        with pa.memory_map(self.where(name)) as file:
            return file.read_buffer()

    def size(self, name: str) -> int | None:
        path = self.path / name
        return path.stat().st_size if path.is_file() else None

    def version_tag(self, name: str) -> str | None:
        try:
            found = (self.path / name).stat()
        except FileNotFoundError:
            return None
        return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}"

    def written_version_tag(self, name: str) -> str | None:
        return self.version_tag(name)

    def holds(self, name: str, size: int, xxh3_128: str, version_tag: str | None) -> bool:
        """Compare the size and the hash of the content with the recorded ones. After a power cut, a
        file may have the right size, but the wrong content."""
        path = self.path / name
        try:
            found = path.lstat()  # do not follow links, because a build never writes links
            return (
                stat.S_ISREG(found.st_mode)
                and found.st_size == size
                and hash_file(path) == (size, xxh3_128)
            )
        except (FileNotFoundError, InputError):
            return False

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)
