"""Atomic writes: a file appears under its name only when it is complete."""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self, cast

import xxhash

from schemas.errors import BuildError

_SYNC_FILE_RANGE_WRITE: Final = 2
"""Flag of sync_file_range(2)."""
_WRITE_BACK_BYTES: Final = 8 << 20


class HashingWriter:
    """A writable binary file that hashes its content. pyarrow accepts it like any file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = xxhash.xxh3_128()
        self.bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._hash.update(data)
        self.bytes += len(data)
        return self._file.write(data)

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True

    @property
    def xxh3_128(self) -> str:
        return self._hash.hexdigest()


class Finisher:
    """Finishes files in threads, so that fsync or upload overlaps with computing the next file.

    All files are complete when the finisher's context ends.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="thdpack-finish")
        self._begun: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for all files.

        Raises:
            ThdpackError: a file could not be finished, and the context itself ended without error.
        """
        self._threads.shutdown(wait=True)
        if error is None:
            for future in self._begun:
                future.result()

    def finish(self, how: Callable[[], None]) -> None:
        """Run a function in a background thread."""
        self._begun.append(self._threads.submit(how))


def finish_by(finisher: Finisher | None, how: Callable[[], None]) -> None:
    """Run a function in a finisher's threads. Without a finisher, run it immediately."""
    if finisher is None:
        how()
    else:
        finisher.finish(how)


@contextmanager
def written_atomically(
    final: Path,
    *,
    scratch: Path,
    durable: bool = True,
    write_back: bool = False,
    finisher: Finisher | None = None,
    remedy: str = "make room on its disk",
) -> Iterator[HashingWriter]:
    """Write a file under a temporary name in `scratch`, then rename it to `final`.

    Args:
        final: path under which the file appears when it is complete.
        scratch: folder of the temporary file, on the same file system as `final`.
        durable: True to fsync before the rename. The name itself survives a power cut only after
            `sync_folder`. One call of that function is enough for all files of a folder.
        write_back: True if the caller syncs the file later, with `sync_files`. The system then
            begins to write the file to the disk while the file is still being written.
        finisher: object that runs fsync and rename. The file exists when the finisher's context
            ends. With None, the calling thread runs fsync and rename.
        remedy: advice for the error message.
    Raises:
        BuildError: the disk is full or cannot be written.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    # this name is unique to the process, even if several machines share the folder
    own = f"{os.uname().nodename}.{os.getpid()}"
    # the name includes the folder, because shards of different splits have equal names
    temporary = scratch / f"{final.parent.name}.{final.name}.{own}.tmp"
    with _unfinished(temporary, final, remedy):
        file = open(temporary, "wb", buffering=0)  # noqa: SIM115 (`finish` closes the file)
        try:
            yield HashingWriter(cast(BinaryIO, WholeWrites(file, write_back=write_back)))
        except BaseException:
            file.close()
            raise

    def finish() -> None:
        with _unfinished(temporary, final, remedy), file:
            if durable:
                os.fsync(file.fileno())
            elif write_back:
                begin_write_back(file.fileno())
            os.replace(temporary, final)

    finish_by(finisher, finish)


@contextmanager
def _unfinished(temporary: Path, final: Path, remedy: str) -> Iterator[None]:
    """Remove the temporary file after any error.

    Raises:
        BuildError: the disk is full or cannot be written.
    """
    try:
        yield
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, InterruptedError):
            raise
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            remedy = "make its folder writable"
        raise BuildError(
            f"cannot write {final}: {error.strerror or error}; "
            f"{remedy}, then run the same command to resume"
        ) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class WholeWrites:
    """An unbuffered file whose `write` repeats the system call until all bytes are written.

    write_back: True to begin to write to the disk after every _WRITE_BACK_BYTES.
    """

    def __init__(self, file: Any, *, write_back: bool = False) -> None:
        self._file = file
        self._write_back = write_back
        self._pending = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += self._file.write(view[done:])
        self._pending += done
        if self._write_back and self._pending >= _WRITE_BACK_BYTES:
            begin_write_back(self._file.fileno())
            self._pending = 0
        return done

    def flush(self) -> None:
        self._file.flush()


def begin_write_back(descriptor: int) -> None:
    """Begin to write a file's changed pages to the disk, without waiting for the end.

    Otherwise Linux would wait up to 30 s, and a later fsync would have to write everything. Errors
    are ignored, because that fsync raises them. On other systems, this function does nothing.
    """
    call = _sync_file_range()
    if call is not None:
        call(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Any:
    """Return the C library's function `sync_file_range`, or None if it has none."""
    return getattr(ctypes.CDLL(None), "sync_file_range", None)


def nearest_existing(folder: Path) -> Path:
    """Return a folder if it exists, or else its nearest parent that exists."""
    return next(each for each in (folder, *folder.absolute().parents) if each.exists())


def try_folder(folder: Path) -> None:
    """Check that a folder, or its nearest existing parent, accepts new files.

    The check creates an empty folder with a random name there, and removes it. It does not rely on
    permissions, because root passes permission checks even on a read-only file system.

    Raises:
        OSError: the folder accepts no files, or it is a file.
    """
    os.rmdir(tempfile.mkdtemp(prefix=".thdpack-", dir=nearest_existing(folder.absolute())))


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names of its files survive a power cut."""
    _fsync(folder)


def sync_files(paths: Sequence[Path]) -> None:
    """Sync files, so that their content survives a power cut."""
    for path in paths:
        _fsync(path)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
