"""An object of a store as a readable file, fetched in ranges, with prefetch and retries.

A range has 16 MiB. If a range fails or is incomplete, only that range is fetched again. The file
holds up to three ranges in memory.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pipeline.storage.retries import RemoteStore, call_with_deadline
from pipeline.storage.urls import is_missing
from schemas.errors import DatasetError, InputError, SettingError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

RANGE: Final = 16 << 20
_AHEAD: Final = 2
_SMALL: Final = 1 << 12
"""Reads of at most this many bytes, such as those of a file's header or footer, do not start a
prefetch."""

T = TypeVar("T")


class RangedFile(io.RawIOBase):
    """A file that prefetches ranges during sequential reads. Other reads fetch only their bytes."""

    def __init__(
        self, url: str, fs: AbstractFileSystem, path: str, *, at: int = 0, until: int | None = None
    ) -> None:
        """Find the object and its size.

        Args:
            at: byte at which reading begins.
            until: byte at which prefetch ends; None for the end of the object.
        Raises:
            FileNotFoundError, PermissionError: the object is missing or forbidden.
            InputError: the store cannot be reached, or fails.
        """
        super().__init__()
        self._fs, self._path = fs, path
        self._stopped = threading.Event()
        self._remote = RemoteStore(url, self._stopped)
        self._size = int(request_with_retries(self._remote, lambda: fs.info(path), 0)["size"])
        self._until = self._size if until is None else min(until, self._size)
        self._position = self._next = at
        self._ahead: dict[int, tuple[int, Future[bytes]]] = {}
        self._threads = ThreadPoolExecutor(_AHEAD, thread_name_prefix="thdpack-range")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = (
            offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        )
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill the whole buffer, unless the object ends first.

        A short read is not allowed, because some readers, such as Arrow's, treat it as the end of
        the file.
        """
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), max(0, self._size - self._position))
        done = 0
        while done < wanted:
            on = self._position == self._next < self._until and (
                wanted > _SMALL or self._position // RANGE in self._ahead
            )
            piece = (
                self._reading_on(wanted - done)
                if on
                else memoryview(self._fetch(self._position, self._position + wanted - done))
            )
            view[done : done + len(piece)] = piece
            done += len(piece)
            self._position = self._next = self._position + len(piece)
        return done

    def close(self) -> None:
        if not self.closed:
            self._stopped.set()
            self._threads.shutdown(wait=False, cancel_futures=True)
        super().close()

    def _reading_on(self, wanted: int) -> memoryview:
        """Return up to `wanted` bytes from the current position, all from one range."""
        first = self._position // RANGE
        near = range(first, first + _AHEAD + 1)
        self._ahead = {
            n: (begin, data)
            for n, (begin, data) in self._ahead.items()
            if n in near and begin <= max(self._position, n * RANGE)
        }
        for number in range(first, min(first + _AHEAD, -(-self._until // RANGE) - 1) + 1):
            if number not in self._ahead:
                begin = max(number * RANGE, self._position if number == first else 0)
                self._ahead[number] = (
                    begin,
                    self._threads.submit(
                        self._fetch, begin, min((number + 1) * RANGE, self._until)
                    ),
                )
        begin, data = self._ahead[first]
        skipped = self._position - begin
        return memoryview(data.result())[skipped : skipped + wanted]

    def _fetch(self, begin: int, end: int) -> bytes:
        def get() -> bytes:
            data: bytes = self._fs.cat_file(self._path, start=begin, end=end)
            if len(data) != end - begin:
                raise ConnectionError(f"{len(data)} of {end - begin} bytes arrived")
            return data

        return request_with_retries(self._remote, get, end - begin)


def request_with_retries(remote: RemoteStore, ask: Callable[[], T], size: int) -> T:
    """Send a request about an input to a store, with retries, and return the answer.

    Args:
        size: approximate number of bytes of the answer, which determines the deadline. Pass
            a larger number if the answer takes longer than its size suggests.
    Raises:
        FileNotFoundError, PermissionError: the object is missing or forbidden.
        SettingError: the store refuses a setting, such as the credentials.
        InputError: the last attempt failed.
    """
    try:
        return remote.with_retries("input", lambda: call_with_deadline(ask, size, remote.stopped))
    except SettingError:
        raise
    except DatasetError as error:
        cause = error.__cause__
        if isinstance(cause, PermissionError) or is_missing(cause):
            raise cause from None
        raise InputError(str(error), source=remote.url) from cause
