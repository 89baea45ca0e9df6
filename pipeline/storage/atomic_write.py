"""Writing files that are there complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

import xxhash

from schemas.errors import BuildError


class HashingWriter:
    """A binary file for writing that hashes what passes through; pyarrow writes to it as to any file."""

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
    """Finishes files beside whoever writes them: a disk's fsync, or the upload to a store, goes on while the next file is computed.

    When its context ends all are there.
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
        """Wait.

        Raises:
            ThdpackError: what finishing a file raised, unless the context itself ended by an error.
        """
        self._threads.shutdown(wait=True)
        if error is None:
            for begun in self._begun:
                begun.result()

    def finish(self, how: Callable[[], None]) -> None:
        """Have it done, soon."""
        self._begun.append(self._threads.submit(how))


def finish_by(finisher: Finisher | None, how: Callable[[], None]) -> None:
    """Have it done by a finisher, or without one at once."""
    if finisher is None:
        how()
    else:
        finisher.finish(how)


@contextmanager
def written_atomically(
    final: Path, *, scratch: Path, durable: bool = True, finisher: Finisher | None = None
) -> Iterator[HashingWriter]:
    """Write a file under a temporary name in `scratch` (same file system); it appears as `final` complete or not at all.

    durable: fsync before the rename. The name itself survives a power cut only after `sync_folder`; whoever relies on
    many files does that once for all.
    finisher: does both, later; the file is there when it says so.

    Raises:
        BuildError: the disk is full or cannot be written.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    own = (
        f"{os.uname().nodename}.{os.getpid()}"  # this process, whichever machines share the folder
    )
    temporary = (
        scratch / f"{final.parent.name}.{final.name}.{own}.tmp"
    )  # a split's shards are called as another's
    with _unfinished(temporary, final):
        file = open(temporary, "wb", buffering=0)  # noqa: SIM115 (it may be finished later)
        try:
            yield HashingWriter(cast(BinaryIO, WholeWrites(file)))
        except BaseException:
            file.close()
            raise

    def finish() -> None:
        with _unfinished(temporary, final), file:
            if durable:
                os.fsync(file.fileno())
            os.replace(temporary, final)

    finish_by(finisher, finish)


@contextmanager
def _unfinished(temporary: Path, final: Path) -> Iterator[None]:
    """Whatever goes wrong, the temporary file goes.

    Raises:
        BuildError: the disk is full or cannot be written.
    """
    try:
        yield
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, InterruptedError):
            raise
        raise BuildError(
            f"cannot write {final}: {error.strerror or error}; make room or choose another --out, then run the same command to go on"
        ) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class WholeWrites:
    """An unbuffered file whose `write` writes all of it: the system call may stop short."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += self._file.write(view[done:])
        return done

    def flush(self) -> None:
        self._file.flush()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_files(paths: Sequence[Path]) -> None:
    """Make the content of files survive a power cut."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
