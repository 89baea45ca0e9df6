"""A folder of bounded size that unrelated processes and jobs can share.

Locks (flock) show which files are in use. The kernel releases the locks of a killed process. The
fetching process holds an exclusive lock on a .part file. Each process that has mapped a file holds
a shared lock on it. A locked file is not evicted, because removing a mapped file would free
nothing. The limit counts .part files at the size they will have.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipeline.storage.retries import CacheError, ClosedError

DEFAULT_BYTES: Final = 32 << 30
"""Default limit of a cache."""
ROOM_SECONDS: Final = 120.0
"""Longest wait for space that other processes occupy."""
LOCK_SECONDS: Final = 600.0
"""Longest wait for a shard that another process fetches, far longer than any fetch takes."""

_TICK: Final = 0.05
_LOCK_NAME: Final = "lock"
_CACHED: Final = re.compile(r"[0-9a-f]{32}\.(arrow|part)")
"""Names of the files that a cache writes. It leaves all others alone."""
# a link could lead to a file that does not belong to the cache
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW
_MAKE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW


class CacheFolder:
    """The files of a cache: opened, locked, and evicted when they exceed the limit."""

    def __init__(
        self,
        path: Path,
        limit: int,
        next_use: Callable[[], Iterable[str]],
        stopped: threading.Event,
    ) -> None:
        """Open or make the folder, and remove what killed processes left in it.

        Args:
            limit: bytes that all shards in the folder may have together.
            next_use: hashes of the shards in the order of their next use, the soonest first.
            stopped: ends every wait when it is set.
        Raises:
            CacheError: the folder cannot be made or written.
        """
        self.path, self._limit, self._next_use, self._stopped = path, limit, next_use, stopped
        with self._locked():
            self._evict(0)

    def open_locked(self, path: Path) -> int | None:
        """Return a descriptor with a shared lock on a file of the cache; None if it is missing."""
        while True:
            with self.errors():
                try:
                    descriptor = os.open(path, _READ)
                except FileNotFoundError:
                    return None
            with closing_on_error(descriptor):
                if self.lock(descriptor, fcntl.LOCK_SH, path):
                    return descriptor
            os.close(descriptor)  # evicted between the calls

    def open_part(self, part: Path) -> int:
        """Return a descriptor of an unfinished file, created if it is missing."""
        with self.errors():
            self.path.mkdir(parents=True, exist_ok=True)
            return os.open(part, _MAKE, 0o644)

    def lock(self, descriptor: int, kind: int, path: Path) -> bool:
        """Wait for a lock on an open file; return False, without a lock, if it lost its name.

        A file loses its name when it is removed or published.

        Raises:
            CacheError: another process has held the lock for LOCK_SECONDS.
            ClosedError: the reader was closed.
        """
        deadline, pause = time.monotonic() + LOCK_SECONDS, 0.001
        while is_at(descriptor, path):
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CacheError(
                        f"{path}: another process has had it locked for {LOCK_SECONDS:g} s; "
                        "is it stopped?"
                    ) from None
                if self._stopped.wait(pause):
                    raise ClosedError() from None
                pause = min(2 * pause, _TICK)
            else:
                if is_at(descriptor, path):
                    return True
                # the file was published just now, and this lock would keep others from using it
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        return False

    def publish(self, descriptor: int, part: Path, path: Path) -> bool:
        """Give a finished .part its final name; return False if it was removed meanwhile."""
        with self._locked():
            # without the lock, a process that adds up sizes could miss the renamed file
            if not is_at(descriptor, part):
                return False
            with self.errors():
                os.replace(part, path)
        return True

    def reserve(self, descriptor: int, size: int, name: str) -> None:
        """Evict files until `size` more bytes fit, and give an open .part that size.

        Raises:
            CacheError: other processes have had everything locked for ROOM_SECONDS.
            ClosedError: the reader was closed.
        """
        deadline = time.monotonic() + ROOM_SECONDS
        with self.errors():
            # so that bytes left by a killed process are not counted twice
            os.truncate(descriptor, 0)
        while True:
            with self._locked():
                missing = self._evict(size)
                if missing <= 0:
                    with self.errors():
                        os.truncate(descriptor, size)
                    return
            if time.monotonic() > deadline:
                raise CacheError(
                    f"{self.path}: no room for {name}: {missing} bytes are missing, because this "
                    "and other processes use the rest; raise cache_bytes "
                    f"(now {self._limit}) or give each job a cache_dir of its own"
                )
            if self._stopped.wait(_TICK):
                raise ClosedError()

    def _evict(self, wanted: int) -> int:
        """Remove leftovers of killed processes, then unused files until `wanted` more bytes fit.

        Returns:
            Bytes that are still missing.
        """
        files, used = self._files()
        missing = used + wanted - self._limit
        if missing <= 0:
            return missing
        rank: dict[str, int] = {}
        for place, digest in enumerate(self._next_use()):
            rank.setdefault(f"{digest}.arrow", place)

        def order(name: str) -> tuple[bool, int, int]:
            """Sort key of eviction: first shards of other datasets, the longest unused first; then
            those of this reader, the latest next use first."""
            return name in rank, -rank.get(name, 0), files[name][1]

        for name in sorted(files, key=order):
            if missing <= 0:
                break
            if self._remove_unlocked(self.path / name):
                missing -= files[name][0]
        return missing

    def _files(self) -> tuple[dict[str, tuple[int, int]], int]:
        """List the cache.

        Returns:
            Size and modification time of each shard by name; bytes of all files of the cache.
        """
        files: dict[str, tuple[int, int]] = {}
        used = 0
        with self.errors():
            items = list(os.scandir(self.path))
        for item in items:
            if not _CACHED.fullmatch(item.name) or item.is_symlink():
                continue
            try:
                stat = item.stat()
            except FileNotFoundError:
                continue
            if item.name.endswith(".part") and self._remove_unlocked(Path(item.path)):
                continue
            used += stat.st_size
            if item.name.endswith(".arrow"):
                files[item.name] = stat.st_size, stat.st_mtime_ns
        return files, used

    def _remove_unlocked(self, path: Path) -> bool:
        """Remove a file unless a process holds a lock on it; return whether it was removed."""
        with self.errors():
            try:
                descriptor = os.open(path, _READ)
            except FileNotFoundError:
                return False
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not is_at(descriptor, path):
                    return False
                os.unlink(path)
                return True
            except BlockingIOError:
                return False
            finally:
                os.close(descriptor)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the operating system's errors as a CacheError, because retrying would not help."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise CacheError(
                f"{self.path}: the cache cannot be used: {reason}; "
                "make room there or choose another cache_dir"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's own lock."""
        path, locked = self.path / _LOCK_NAME, False
        while not locked:  # repeat if the folder was cleared just now
            descriptor = self.open_part(path)
            with closing_on_error(descriptor):
                locked = self.lock(descriptor, fcntl.LOCK_EX, path)
            if not locked:
                os.close(descriptor)
        try:
            yield
        finally:
            os.close(descriptor)


@contextmanager
def closing_on_error(descriptor: int) -> Iterator[None]:
    """Close a descriptor if the context ends by an error."""
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise


def default_cache_dir() -> Path:
    """Return the default folder of a cache.

    It is $XDG_CACHE_HOME/thdpack, or ~/.cache/thdpack.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thdpack"


def is_at(descriptor: int, path: Path) -> bool:
    """Whether `path` names this open file now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
