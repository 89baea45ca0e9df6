"""A bounded folder of verified shards, shared by the processes of a node and by jobs that know nothing of each other.

A file is called by the xxh3_128 of its content, so that datasets share what they have in common. It appears by rename,
after its bytes were verified; what is unfinished ends in .part. Locks (flock) say who is at work, and the kernel drops
those of a killed process: an exclusive lock on a .part is held by the one that fetches it, a shared lock on a file by each
process that has it mapped. What is locked is not evicted, for removing a mapped file would free nothing. The limit counts
.part files at the size they will have. The folder has to be on a local disk.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import xxhash

from pipeline.reader.bucket_shape import BucketShape
from pipeline.reader.fork_guard import tell_after_fork
from pipeline.reader.mapped_shard import DamagedShardError, MappedShard
from pipeline.storage.retries import CacheError, ClosedError, Remote
from schemas.errors import DatasetError
from schemas.manifest_entries import ShardEntry

DEFAULT_BYTES: Final = 32 << 30
"""Limit of a cache whose user named none."""
ROOM_SECONDS: Final = 120.0
"""How long to wait for room that other processes hold before giving up."""
LOCK_SECONDS: Final = 600.0
"""How long to wait for a shard that another process is fetching: far longer than fetching or failing takes."""

_TICK: Final = 0.05
_LOCK_NAME: Final = "lock"
_OURS: Final = re.compile(r"[0-9a-f]{32}\.(arrow|part)")
"""Names of the files that a cache writes. Others in the folder are not its business."""
_READ: Final = (
    os.O_RDONLY | os.O_NOFOLLOW
)  # a link that somebody left there leads to a file that is not ours
_MAKE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW


class ShardCache:
    """Shards of a remote dataset, fetched when they are needed."""

    def __init__(
        self, folder: Path, limit: int, remote: Remote, next_use: Callable[[], Iterable[str]]
    ) -> None:
        """Open or make the folder, and remove what killed processes left in it.

        Args:
            limit: bytes that all shards in the folder may have together.
            next_use: hashes of the shards in the order in which they will be used, one that is needed soon first.
        Raises:
            CacheError: the folder cannot be made or written.
        """
        self._folder, self._limit, self._remote, self._next_use = folder, limit, remote, next_use
        self.bytes_fetched = 0
        self._count = threading.Lock()
        with self._locked_folder():
            self._evict(0)
        tell_after_fork(self)

    def after_fork(self) -> None:
        """Replace a lock that another thread may have held."""
        self._count = threading.Lock()

    def open(
        self, entry: ShardEntry, shape: BucketShape, *, look_inside: bool = True
    ) -> MappedShard:
        """A shard, mapped and verified (`look_inside`: see MappedShard); fetched if it is not here, fetched again if it is here but damaged.

        Raises:
            DatasetError: it cannot be fetched, or there is no room for it.
            ClosedError: the reader was closed.
        """
        return self._remote.with_retries(
            entry.name, lambda: self._open(entry, shape, look_inside=look_inside)
        )

    def _open(self, entry: ShardEntry, shape: BucketShape, *, look_inside: bool) -> MappedShard:
        path = self._folder / f"{entry.xxh3_128}.arrow"
        descriptor = self._claim(path)
        if descriptor is None:
            descriptor = self._fetch(entry, path)
        with self._closing_on_error(descriptor):
            with suppress(PermissionError):  # another user's file
                os.utime(descriptor)  # its last use: who does not know our order goes by that
            try:
                return MappedShard(
                    path,
                    entry,
                    shape,
                    release=partial(os.close, descriptor),
                    look_inside=look_inside,
                )
            except DamagedShardError:
                if _is_at(descriptor, path):
                    path.unlink(
                        missing_ok=True
                    )  # whoever has it mapped verified it when it was good
                raise
            except (
                DatasetError
            ) as error:  # no descriptor or mapping left: the file itself may be good
                raise CacheError(str(error)) from error

    def _claim(self, path: Path) -> int | None:
        """A descriptor with a shared lock on a file of the cache; None if it is not there."""
        while True:
            with self._errors():
                try:
                    descriptor = os.open(path, _READ)
                except FileNotFoundError:
                    return None
            with self._closing_on_error(descriptor):
                if self._lock(descriptor, fcntl.LOCK_SH, path):
                    return descriptor
            os.close(descriptor)  # evicted between the calls

    def _fetch(self, entry: ShardEntry, path: Path) -> int:
        """Fetch a shard, or wait while another process does; a descriptor with a shared lock on it."""
        part = path.with_suffix(".part")
        while True:
            with self._errors():
                self._folder.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(part, _MAKE, 0o644)
            with self._closing_on_error(descriptor):
                locked = self._lock(descriptor, fcntl.LOCK_EX, part)
                published = self._claim(
                    path
                )  # by the process we waited for, or just before we made a .part of our own
                if published is None and locked:
                    self._download(entry, descriptor, part, path)
                    fcntl.flock(descriptor, fcntl.LOCK_SH)  # from exclusive: at once
                    if _is_at(descriptor, path):
                        return descriptor
                elif published is not None and locked:
                    part.unlink(missing_ok=True)
            os.close(descriptor)
            if published is not None:
                return published

    def _lock(self, descriptor: int, kind: int, path: Path) -> bool:
        """Wait for a lock on an open file; False, and no lock, if the file has lost its name: removed, or published.

        Raises:
            CacheError: another process has held it for LOCK_SECONDS.
        """
        deadline, pause = time.monotonic() + LOCK_SECONDS, 0.001
        while _is_at(descriptor, path):
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CacheError(
                        f"{path}: another process has had it locked for {LOCK_SECONDS:g} s; is it stopped?"
                    ) from None
                if self._remote.stopped.wait(pause):
                    raise ClosedError() from None
                pause = min(2 * pause, _TICK)
            else:
                if _is_at(descriptor, path):
                    return True
                fcntl.flock(
                    descriptor, fcntl.LOCK_UN
                )  # it got its final name just now; the lock would keep others, and us, from it
        return False

    def _download(self, entry: ShardEntry, descriptor: int, part: Path, path: Path) -> None:
        """Write a shard into its locked .part, verify it, publish it."""
        try:
            self._make_room(entry, descriptor)
            digest, done = xxhash.xxh3_128(), 0
            for piece in self._remote.pieces(entry.name):
                with self._count:
                    self.bytes_fetched += len(piece)
                if done + len(piece) > entry.bytes:  # never beyond the room that was made
                    raise DamagedShardError(
                        f"the store gave more than the {entry.bytes} bytes that the manifest says"
                    )
                digest.update(piece)
                view, written = memoryview(piece), 0
                while written < len(view):
                    with self._errors():
                        written += os.pwrite(descriptor, view[written:], done + written)
                done += len(piece)
            if done != entry.bytes:
                raise DamagedShardError(
                    f"the store gave {done} bytes, the manifest says {entry.bytes}"
                )
            if digest.hexdigest() != entry.xxh3_128:
                raise DamagedShardError(
                    f"what the store gave has xxh3_128 {digest.hexdigest()}, the manifest says {entry.xxh3_128}"
                )
            with (
                self._locked_folder()
            ):  # a file that changes its name while others add up could be missed
                if not _is_at(descriptor, part):
                    raise DamagedShardError(
                        "somebody removed the file from the cache while it was fetched"
                    )
                with self._errors():
                    os.replace(part, path)
        except BaseException:
            if _is_at(descriptor, part):
                part.unlink(missing_ok=True)
            raise

    def _make_room(self, entry: ShardEntry, descriptor: int) -> None:
        """Evict until a shard fits, and reserve its bytes.

        Raises:
            DatasetError: other processes have had everything locked for ROOM_SECONDS.
        """
        deadline = time.monotonic() + ROOM_SECONDS
        with self._errors():
            os.truncate(descriptor, 0)  # what a killed process left in it does not count twice
        while True:
            with self._locked_folder():
                missing = self._evict(entry.bytes)
                if missing <= 0:
                    with self._errors():
                        os.truncate(descriptor, entry.bytes)
                    return
            if time.monotonic() > deadline:
                raise CacheError(
                    f"{self._folder}: no room for {entry.name}: {missing} bytes too little, for the rest is in use by this or other processes; "
                    f"raise cache_bytes (now {self._limit}) or give each job a cache_dir of its own"
                )
            if self._remote.stopped.wait(_TICK):
                raise ClosedError()

    def _evict(self, wanted: int) -> int:
        """Remove what killed processes left, and files nobody uses until `wanted` more bytes fit; how many are missing then."""
        files: dict[str, tuple[int, int]] = {}
        used = 0
        with self._errors():
            items = list(os.scandir(self._folder))
        for item in items:
            if not _OURS.fullmatch(item.name) or item.is_symlink():
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
        missing = used + wanted - self._limit
        if missing <= 0:
            return missing
        rank: dict[str, int] = {}
        for place, digest in enumerate(self._next_use()):
            rank.setdefault(f"{digest}.arrow", place)
        # first what is not of our dataset, longest unused first; then ours, the one with the latest next use first
        for name in sorted(
            files, key=lambda name: (name in rank, -rank.get(name, 0), files[name][1])
        ):
            if missing <= 0:
                break
            if self._remove_unlocked(self._folder / name):
                missing -= files[name][0]
        return missing

    def _remove_unlocked(self, path: Path) -> bool:
        """Remove a file unless a process holds a lock on it; whether it was removed."""
        with self._errors():
            try:
                descriptor = os.open(path, _READ)
            except FileNotFoundError:
                return False
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_at(descriptor, path):
                    return False
                os.unlink(path)
                return True
            except BlockingIOError:
                return False
            finally:
                os.close(descriptor)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What the operating system says of the folder, as an error that no retry mends."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise CacheError(
                f"{self._folder}: the cache cannot be used: {reason}; make room there or choose another cache_dir"
            ) from error

    @contextmanager
    def _closing_on_error(self, descriptor: int) -> Iterator[None]:
        try:
            yield
        except BaseException:
            os.close(descriptor)
            raise

    @contextmanager
    def _locked_folder(self) -> Iterator[None]:
        path, locked = self._folder / _LOCK_NAME, False
        while not locked:  # again, if somebody cleared the folder just now
            with self._errors():
                self._folder.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(path, _MAKE, 0o644)
            with self._closing_on_error(descriptor):
                locked = self._lock(descriptor, fcntl.LOCK_EX, path)
            if not locked:
                os.close(descriptor)
        try:
            yield
        finally:
            os.close(descriptor)


def default_folder() -> Path:
    """Where shards are cached if the user names no folder: $XDG_CACHE_HOME/thdpack, or ~/.cache/thdpack."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thdpack"


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
