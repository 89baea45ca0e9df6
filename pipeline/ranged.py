"""An object of a store as a file to read: in ranges, fetched ahead, each tried again while it fails.

A range that came short or not at all is fetched again alone; what was read before stays read. Costs up to three ranges of memory.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pipeline.remote import Remote, in_time
from schemas.errors import DatasetError, InputError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

RANGE: Final = 8 << 20
_AHEAD: Final = 2

T = TypeVar("T")


class RangedFile(io.RawIOBase):
    """Read by whoever reads on, ahead of them; by whoever seeks, exactly what is asked for."""

    def __init__(self, url: str, fs: AbstractFileSystem, path: str, *, at: int = 0) -> None:
        """Find the object and its size.

        Raises:
            InputError: it is not there or cannot be reached.
        """
        super().__init__()
        self._url, self._fs, self._path = url, fs, path
        self._stopped = threading.Event()
        self._remote = Remote(url, self._stopped)
        self._size = int(self._tried(lambda: in_time(lambda: fs.info(path), 0))["size"])
        self._position = self._next = at
        self._ahead: dict[int, Future[bytes]] = {}
        self._threads = ThreadPoolExecutor(_AHEAD, thread_name_prefix="thdpack-range")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), self._size - self._position)
        if wanted <= 0:
            return 0
        on = self._position == self._next and len(view) > 1 << 12
        data = self._reading_on(wanted) if on else memoryview(self._fetch(self._position, self._position + wanted))
        view[: len(data)] = data
        self._position = self._next = self._position + len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stopped.set()
            self._threads.shutdown(wait=False, cancel_futures=True)
        super().close()

    def _reading_on(self, wanted: int) -> memoryview:
        """Up to `wanted` bytes from here, no further than the range that holds the first of them."""
        first = self._position // RANGE
        self._ahead = {number: future for number, future in self._ahead.items() if number >= first}
        for number in range(first, min(first + _AHEAD, -(-self._size // RANGE) - 1) + 1):
            if number not in self._ahead:
                begin = max(number * RANGE, self._position if number == first else 0)
                self._ahead[number] = self._threads.submit(self._fetch, begin, min((number + 1) * RANGE, self._size))
        data = self._ahead[first].result()
        end = min((first + 1) * RANGE, self._size)
        skipped = len(data) - (end - self._position)
        return memoryview(data)[skipped : skipped + wanted]

    def _fetch(self, begin: int, end: int) -> bytes:
        def get() -> bytes:
            data: bytes = in_time(lambda: self._fs.cat_file(self._path, start=begin, end=end), end - begin)
            if len(data) != end - begin:
                raise ConnectionError(f"{len(data)} of {end - begin} bytes came")
            return data

        return self._tried(get)

    def _tried(self, read: Callable[[], T]) -> T:
        try:
            return self._remote.with_retries("input", read)
        except DatasetError as error:
            cause = error.__cause__
            if isinstance(cause, (FileNotFoundError, PermissionError)):
                raise cause from None  # told like any other file's
            raise InputError(str(error), source=self._url) from cause
