"""A local folder as the inbox."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.service.errors import RetryError
from pipeline.service.inbox.inbox import Candidate, free_name, is_own, is_temporary
from pipeline.service.inbox.local_names import free_target, write_reason
from pipeline.storage.atomic_write import sync_folder

_BLOCK = 1 << 20
_LONGEST_FOLDER = 3_000
"""Sub-folders whose path has more bytes are ignored, because Linux limits paths to 4,096 bytes."""


@dataclass(frozen=True, slots=True)
class LocalInbox:
    """A folder of this machine. See `Inbox` for its methods."""

    path: Path

    def where(self, name: str = "") -> str:
        return str(self.path / name)

    def scan(self) -> dict[str, Candidate]:
        with _retried(f"cannot list the inbox {self.path}"):
            return {found.name: found for found in self._files()}

    def _files(self) -> Iterator[Candidate]:
        """Yield the files of the inbox and its sub-folders."""
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(self.path / folder))
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                if not folder:
                    raise
                continue  # the sub-folder vanished, or this user must not list it
            for entry in entries:
                name = f"{folder}{entry.name}"
                if is_own(name) or is_temporary(entry.name):
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                except (FileNotFoundError, PermissionError):
                    continue  # the file vanished, or this user must not enter the folder
                if stat.S_ISDIR(found.st_mode):
                    if len(os.fsencode(self.path / name)) < _LONGEST_FOLDER:
                        folders.append(f"{name}/")
                    continue
                yield Candidate(
                    name=name,
                    bytes=found.st_size,
                    version=_version(found),
                    changed=max(found.st_mtime, found.st_ctime),
                    refusal=self._refusal(name, found),
                )

    def _refusal(self, name: str, found: os.stat_result) -> str:
        """Return the reason why a file is never read; "" if there is none."""
        try:
            name.encode()
        except UnicodeEncodeError:
            return "its name is not UTF-8, but the manifest needs names in UTF-8: rename the file"
        if stat.S_ISLNK(found.st_mode):
            return "a link: copy or move the file itself into the inbox"
        if not stat.S_ISREG(found.st_mode):
            return "not a regular file, but a pipe, a socket or a device"
        return "" if found.st_size else "the file is empty"

    def version(self, name: str) -> str | None:
        try:
            with _retried(f"cannot reach {self.where(name)}"):
                return _version(os.lstat(self.path / name))
        except (FileNotFoundError, NotADirectoryError):  # perhaps its folder is a file now
            return None

    def read(self, name: str, on_block: Callable[[bytes], object]) -> None:
        with _retried(f"cannot read {self.where(name)}"), open(self.path / name, "rb") as file:
            while block := file.read(_BLOCK):
                on_block(block)

    def move(self, name: str, version: str, folder: str, reason: str = "") -> str | None:
        source = self.path / name
        if self.version(name) != version:
            return None
        with _retried(f"cannot move {source} to {folder}/"):
            target = self.path / folder / free_target(self.path / folder, name, reason)
            target.parent.mkdir(parents=True, exist_ok=True)
            if reason:
                write_reason(target, reason)
            try:
                os.rename(source, target)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                shutil.move(source, target)  # folder/ is on another file system
                return str(target.relative_to(self.path))
            if _content(_version(os.lstat(target))) != _content(version):
                # the file was replaced after its version was read: put the new one back
                os.rename(target, self.path / free_name(name, self._is_used))
                return None
        return str(target.relative_to(self.path))

    def _is_used(self, name: str) -> bool:
        return os.path.lexists(self.path / name)

    def sync(self, names: Iterable[str]) -> None:
        with _retried(f"cannot sync {self.path}"):
            for parent in {(self.path / name).parent for name in names}:
                sync_folder(parent)


def _version(found: os.stat_result) -> str:
    # A rename changes ctime. So a refused file that the user moves back is tried again.
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}-{found.st_ino}"


def _content(version: str) -> list[str]:
    """Return the parts of a version that a rename keeps."""
    size, changed, _, inode = version.split("-")
    return [size, changed, inode]


@contextmanager
def _retried(what: str) -> Iterator[None]:
    """Turn errors that may be temporary, such as a full disk, into a RetryError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        if what.startswith("cannot list"):
            raise RetryError(f"{what}: there is no such folder") from error
        raise
    except PermissionError as error:
        if what.startswith("cannot read"):
            raise
        raise RetryError(f"{what}: {error.strerror}") from error
    except OSError as error:
        raise RetryError(f"{what}: {error.strerror or error}") from error
