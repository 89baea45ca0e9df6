"""A folder of cached shards, of bounded size, that unrelated processes and jobs can share.

A shard is a file `HASH.arrow`. While a process fetches a shard, the file is named `HASH.part`.
Locks (flock) show which files are in use. The kernel releases the locks of a killed process. A
process that fetches a shard holds an exclusive lock on the .part file. Each process that has mapped
a shard holds a shared lock on the shard's file. Locked files are not evicted, because removing a
mapped file would free no space. A .part file counts with the size of the complete shard.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipeline.storage.retries import CacheError, ClosedError

DEFAULT_BYTES: Final = 32 << 30
"""Default size limit of a cache, in bytes."""
ROOM_SECONDS: Final = 120.0
"""Longest time, in seconds, to wait for other processes to free space."""
LOCK_SECONDS: Final = 600.0
"""Longest time, in seconds, to wait for a shard that another process fetches. A fetch takes far
less time."""

_TICK: Final = 0.05
_LOCK_NAME: Final = "lock"
_CACHED: Final = re.compile(r"[0-9a-f]{32}\.(arrow|part)")
"""Names of the files that a cache writes. The cache never touches other files."""
# O_NOFOLLOW: a link could point to a file outside the cache
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW
_MAKE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW


class CacheFolder:
    """Opens and locks the files of a cache, and evicts files to keep within the size limit."""

    def __init__(
        self,
        path: Path,
        limit: int,
        next_use: Callable[[], Iterable[str]],
        stopped: threading.Event,
    ) -> None:
        """Open or create the folder, and remove unfinished files of killed processes.

        Args:
            limit: maximum total size of the shards in the folder, in bytes.
            next_use: function that returns the shards' hashes in the order of their next use.
            stopped: event that ends every wait.
        Raises:
            CacheError: the folder cannot be made or written.
        """
        self.path, self._limit, self._next_use, self._stopped = path, limit, next_use, stopped
        with self._locked():
            self._evict(0)

    def open_locked(self, path: Path) -> int | None:
        """Return a descriptor of a cached file, with a shared lock; None if the file is missing."""
        while True:
            with self.errors():
                try:
                    descriptor = os.open(path, _READ)
                except FileNotFoundError:
                    return None
            with closing_on_error(descriptor):
                if self.lock(descriptor, fcntl.LOCK_SH, path):
                    return descriptor
            os.close(descriptor)  # the file was evicted after it was opened and before the lock

    def open_part(self, part: Path) -> int:
        """Return a descriptor of a .part file. Create the file if it is missing."""
        with self.errors():
            self.path.mkdir(parents=True, exist_ok=True)
            return os.open(part, _MAKE, 0o644)

    def lock(self, descriptor: int, kind: int, path: Path) -> bool:
        """Wait for a lock on an open file. If the file was removed, return False without a lock.

        A .part file that was renamed to its final name counts as removed.

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
                        f"{path}: another process has locked this file for {LOCK_SECONDS:g} s; "
                        "check whether that process is stopped"
                    ) from None
                if self._stopped.wait(pause):
                    raise ClosedError() from None
                pause = min(2 * pause, _TICK)
            else:
                if is_at(descriptor, path):
                    return True
                # release the lock: the file was renamed just now, and other processes need the file
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        return False

    def publish(self, descriptor: int, part: Path, path: Path) -> bool:
        """Give a complete .part file its final name. If the file was removed, return False."""
        with self._locked():
            # lock the folder, because a process that adds up sizes could otherwise miss the file
            if not is_at(descriptor, part):
                return False
            with self.errors():
                os.replace(part, path)
        return True

    def reserve(self, descriptor: int, size: int, name: str) -> None:
        """Evict files until `size` more bytes fit. Then enlarge an open .part file to `size` bytes.

        Raises:
            CacheError: no space became free in ROOM_SECONDS, because files in use were locked.
            ClosedError: the reader was closed.
        """
        deadline = time.monotonic() + ROOM_SECONDS
        with self.errors():
            # remove the bytes that a killed process wrote, because they would be counted twice
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
                    "and other processes use all cached shards; raise cache_bytes "
                    f"(now {self._limit}) or give each job its own cache_dir"
                )
            if self._stopped.wait(_TICK):
                raise ClosedError()

    def _evict(self, wanted: int) -> int:
        """Remove .part files of killed processes, then unused files until `wanted` more bytes fit.

        Returns:
            Number of bytes that are still missing; 0 or less if `wanted` bytes fit.
        """
        files, used = self._files()
        missing = used + wanted - self._limit
        if missing <= 0:
            return missing
        rank: dict[str, int] = {}
        for place, digest in enumerate(self._next_use()):
            rank.setdefault(f"{digest}.arrow", place)

        def order(name: str) -> tuple[bool, int, int]:
            """Return the key that sorts files for eviction.

            Shards of other readers come first, in the order of their last use. Shards of this
            reader follow, beginning with the shard that is needed last.
            """
            return name in rank, -rank.get(name, 0), files[name][1]

        for name in sorted(files, key=order):
            if missing <= 0:
                break
            if self._remove_unlocked(self.path / name):
                missing -= files[name][0]
        return missing

    def _files(self) -> tuple[dict[str, tuple[int, int]], int]:
        """List the cache, and remove .part files of killed processes.

        Returns:
            Size and modification time of each shard, by name; total bytes of the cache's files.
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
        """Remove a file that no process has locked. Return True if the file was removed."""
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
    def errors(self, needed: int = 0) -> Iterator[None]:
        """Turn errors of the operating system into a CacheError, which is not retried.

        Args:
            needed: number of bytes that the context writes, for the error of a full disk.
        """
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            remedy = "choose another cache_dir (on the command line, --cache-dir)"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                free = shutil.disk_usage(self.path).free
                reason = f"{reason} ({needed:,} bytes are needed, {free:,} are free)"
                remedy = f"free space in this folder, {remedy}, or lower cache_bytes"
                remedy += f" (--cache-bytes, now {self._limit:,})"
            raise CacheError(
                f"{self.path}: the cache cannot be used: {reason}; {remedy}"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the whole folder."""
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
    """Close a descriptor if the context ends with an error."""
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise


def remove_unused_lock(folder: Path) -> None:
    """Remove the lock of a cache that holds nothing else. The folder can then be removed, too."""
    path = folder / _LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:  # there is no such cache
        return
    try:
        # a process that waits for this lock creates the folder and a new lock again
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.listdir(folder) == [_LOCK_NAME]:
            os.unlink(path)
    finally:
        os.close(descriptor)


def default_cache_dir() -> Path:
    """Return the default folder of a cache.

    The folder is $XDG_CACHE_HOME/thdpack, or ~/.cache/thdpack if the variable is not set.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thdpack"


def is_at(descriptor: int, path: Path) -> bool:
    """Return True if `path` is still the name of an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
