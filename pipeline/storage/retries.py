"""Retries and deadlines for stores that stall or fail for a while.

A request is tried up to ATTEMPTS times. The pauses between attempts double, have random jitter, and
take about a minute together. A read fails if no piece of 4 MiB arrives for STALL_SECONDS. Some
faults are not retried: a missing or forbidden file, a file that arrived twice with the same wrong
content, a wrong configuration, a full store, and a full cache.
"""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.s3.answers import is_full, reason_of
from pipeline.storage.s3.faults import answer_of, refused_access, refused_setting
from pipeline.storage.urls import file_system, forget_listings, is_missing, protocols
from schemas.errors import DatasetError, SettingError, StoreError
from schemas.text.phrases import REBUILD
from schemas.text.redact import without_credentials

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

ATTEMPTS: Final = 8
FIRST_PAUSE: Final = 0.5
"""Pause in seconds before the second attempt. Each later pause is twice as long, up to
LONGEST_PAUSE."""
LONGEST_PAUSE: Final = 30.0
STALL_SECONDS: Final = 60.0
"""Time in seconds after which a read fails if the store sends nothing. Other requests fail after
this time plus the time that their bytes take at the speed SLOWEST."""
SLOWEST: Final = 1 << 20
"""Speed in bytes per second from which deadlines are computed. A slower transfer may time out."""

AT_ONCE: Final = 32
"""Number of small requests that are sent in parallel."""

_OF_DATASET: Final = re.compile(r"(train|valid|test|records)/[^/]+\.(arrow|parquet)")
_HOPELESS: Final = frozenset(
    {
        "NoRegionError",
        "ParamValidationError",
        "ValueError",
    }
)
"""Names of errors for which a retry is useless, such as configuration errors of AWS's library.
Errors are recognized by these names, because the library may not be installed."""
_PIECE: Final = 4 << 20
_TICK: Final = 0.1
_LOG: Final = logging.getLogger("thdpack")
_CHANCE: Final = random.Random()  # not the global generator, whose state belongs to the user

T = TypeVar("T")


class ClosedError(ValueError):
    """The reader was closed, or the user pressed Ctrl-C."""

    def __init__(self) -> None:
        super().__init__("the reader is closed")


class CacheError(DatasetError):
    """The local cache is full of shards in use, or cannot be written."""


class WrongContentError(DatasetError):
    """A file of the expected size has another hash than the manifest says.

    digest: hash of the file's content
    """

    def __init__(self, message: str, digest: str) -> None:
        super().__init__(message)
        self.digest = digest


class RemoteStore:
    """A folder of a store, reached through fsspec and with retries."""

    def __init__(self, url: str, stopped: threading.Event) -> None:
        """Open the file system. When the event `stopped` is set, every wait ends.

        Raises:
            InputError: no file system is installed for the protocol.
        """
        self.url = url.rstrip("/")
        self.stopped = stopped
        self._fs, self._root = file_system(self.url)

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield a file's bytes in pieces.

        Raises:
            TimeoutError: nothing arrived for STALL_SECONDS.
            ClosedError: the reader was closed.
            Exception: any error of the store.
        """
        forget_listings(self._fs, self.url)  # they may hold the old size of a replaced object
        return read_pieces(self._fs, f"{self._root.rstrip('/')}/{name}", self.stopped)

    def with_retries(self, name: str, fetch: Callable[[], T], *, doing: str = "read from") -> T:
        """Return the result of `fetch`. If `fetch` fails, retry it.

        Args:
            doing: verb and preposition for messages, such as "written to".
        Raises:
            DatasetError: the file is missing, or has wrong content.
            StoreError: the store forbids the request or is full, or the last attempt failed. The
                message names file, URL and cause.
            CacheError: `fetch` raised this error, for which a retry is useless.
            SettingError: the store refuses a setting, such as the credentials, or there is none.
            ClosedError: the reader was closed.
        """
        wrong: set[str] = set()
        for attempt in range(ATTEMPTS):
            try:
                return fetch()
            except (ClosedError, CacheError, SettingError):
                raise
            except Exception as error:  # each store has its own types of errors
                if (refused := refused_setting(error)) is not None:
                    raise SettingError(f"{self.url}: {refused}{_on_workers(error)}") from error
                reason, remedy = reason_of(error, self.url), _remedy(error, name, self.url)
                if isinstance(error, WrongContentError):
                    if error.digest in wrong:
                        raise DatasetError(
                            f"{name}: {doing} {self.url} twice, with the same wrong content: "
                            f"{error}: {REBUILD}"
                        ) from error
                    wrong.add(error.digest)
                if (
                    isinstance(error, PermissionError)
                    or is_missing(error)
                    or is_full(error)
                    or type(error).__name__ in _HOPELESS
                ):
                    kind = DatasetError if is_missing(error) else StoreError
                    raise kind(f"{name}: cannot be {doing} {self.url}: {reason}{remedy}") from error
                if attempt == ATTEMPTS - 1:
                    kind = DatasetError if isinstance(error, WrongContentError) else StoreError
                    raise kind(
                        f"{name}: not {doing} {self.url} in {ATTEMPTS} attempts; last error: "
                        f"{reason}{remedy}"
                    ) from error
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * _CHANCE.uniform(0.5, 1)
            message = without_credentials(f"{name}: not {doing} {self.url}: {reason}")
            _LOG.warning(
                "attempt %d of %d: %s; again in %.1f s", attempt + 1, ATTEMPTS, message, pause
            )
            if _came(self.stopped, pause, self.stopped):
                raise ClosedError()
        raise AssertionError("unreachable")


def _remedy(error: Exception, name: str, url: str) -> str:
    """Return advice about an error that ends the attempts; "" if there is none."""
    status, code, _ = answer_of(error)
    if is_full(error) or code == "NoSuchBucket":
        return ""  # the reason includes the remedy
    if status is not None and status >= 500:
        return ": the store may be full or overloaded; look for the cause in its log"
    if isinstance(error, PermissionError):
        return f": {refused_access(error, url)}"
    if is_missing(error) and _OF_DATASET.fullmatch(name):
        return f": {REBUILD}"
    return ""


def _on_workers(error: Exception) -> str:
    """Return advice about credentials that only another process may have; "" if there is none."""
    if type(error).__name__ != "NoCredentialsError":
        return ""
    return (
        "; each process needs credentials in its environment; on a Ray cluster, set them on each "
        "node before `ray start`"
    )


def read_pieces(fs: AbstractFileSystem, path: str, stopped: threading.Event) -> Iterator[bytes]:
    """Yield a file's bytes in pieces; see `RemoteStore.pieces`.

    A thread reads the file. If the store stalls, this function does not wait for the thread.
    """
    pieces: Queue[bytes | BaseException] = Queue(maxsize=2)
    abandoned = threading.Event()

    def put(piece: bytes | BaseException) -> None:
        while not abandoned.is_set():
            with suppress(Full):
                pieces.put(piece, timeout=_TICK)
                return

    def read() -> None:
        try:
            # the hub's file system reads a file as one stream only if the block size is 0
            block = 0 if "hf" in protocols(fs) else _PIECE
            with fs.open(path, "rb", block_size=block) as file:
                while not abandoned.is_set():
                    piece = file.read(_PIECE)
                    put(piece)
                    if not piece:
                        return
        except BaseException as error:  # raised below
            put(error)

    reading = threading.Thread(target=read, name="thdpack-remote", daemon=True)
    reading.start()
    try:
        deadline = time.monotonic() + STALL_SECONDS
        while True:
            try:
                piece = pieces.get(timeout=_TICK)
            except Empty:
                if stopped.is_set():
                    raise ClosedError() from None
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no byte for {STALL_SECONDS:g} s") from None
                continue
            if isinstance(piece, BaseException):
                raise piece
            if not piece:
                return
            yield piece
            deadline = time.monotonic() + STALL_SECONDS
    finally:
        abandoned.set()
        reading.join(timeout=0.2)  # the thread may hang in a request


def call_with_deadline(
    work: Callable[[], T], size: int, stopped: threading.Event = INTERRUPTED
) -> T:
    """Run `work` in a thread, and return its result. If the store stalls, the thread is abandoned.

    Raises:
        TimeoutError: the transfer of `size` bytes took longer than the deadline.
        ClosedError: `stopped` was set, or the user pressed Ctrl-C.
    """
    outcome: list[Any] = []
    done = threading.Event()

    def run() -> None:
        try:
            outcome.append((work(), None))
        except BaseException as error:  # raised below
            outcome.append((None, error))
        done.set()

    threading.Thread(target=run, name="thdpack-remote", daemon=True).start()
    limit = STALL_SECONDS + size / SLOWEST
    if not _came(done, limit, stopped):
        raise TimeoutError(f"the request was not done in {limit:.0f} s")
    value, error = outcome[0]
    if error is not None:
        raise error
    return cast(T, value)


def _came(event: threading.Event, seconds: float, stopped: threading.Event) -> bool:
    """Return whether an event was set within `seconds`.

    Raises:
        ClosedError: `stopped` was set first, or the user pressed Ctrl-C.
    """
    deadline = time.monotonic() + seconds
    while not event.wait(max(0.0, min(_TICK, deadline - time.monotonic()))):
        if stopped.is_set() or INTERRUPTED.is_set():
            raise ClosedError()
        if time.monotonic() >= deadline:
            return False
    return True
