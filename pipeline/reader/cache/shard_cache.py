"""A bounded folder of verified shards, shared by the processes of a node.

The name of a file is the xxh3_128 of its content. Datasets with equal shards therefore share files.
The cache writes a shard to a .part file, verifies the file, and renames it. The folder must be on a
local disk. See `cache_folder` for locks and eviction.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import xxhash

from pipeline.reader.bucket_shape import BucketShape
from pipeline.reader.cache.busy_time import BusyTime
from pipeline.reader.cache.cache_folder import CacheFolder, closing_on_error, is_at
from pipeline.reader.guards.fork_guard import call_after_fork
from pipeline.reader.mapped_shard import DamagedShardError, MappedShard
from pipeline.storage.retries import CacheError, RemoteStore, WrongContentError
from schemas.errors import DatasetError
from schemas.manifest_entries import ShardEntry


class ShardCache:
    """Shards of a remote dataset. The cache fetches a shard when the shard is needed."""

    def __init__(
        self, folder: Path, limit: int, store: RemoteStore, next_use: Callable[[], Iterable[str]]
    ) -> None:
        """Open the cache. See CacheFolder for the arguments.

        Raises:
            CacheError: the folder cannot be made or written.
        """
        self._store = store
        self._folder = CacheFolder(folder, limit, next_use, store.stopped)
        self.bytes_fetched = 0
        self._count = threading.Lock()
        self._fetching = BusyTime()
        call_after_fork(self)

    def after_fork(self) -> None:
        """Replace locks that another thread may have held at the time of the fork."""
        self._count = threading.Lock()
        self._fetching = BusyTime()

    @property
    def fetch_seconds(self) -> float:
        """Seconds in which at least one fetch from the store ran."""
        return self._fetching.seconds

    def open(
        self, entry: ShardEntry, shape: BucketShape, *, check_buckets: bool = True
    ) -> MappedShard:
        """Return a shard, mapped and verified. Fetch the shard if its file is missing or damaged.

        Args:
            check_buckets: see MappedShard.
        Raises:
            DatasetError: the shard cannot be fetched, or does not fit into the cache.
            ClosedError: the reader was closed.
        """
        return self._store.with_retries(
            entry.name, lambda: self._open(entry, shape, check_buckets=check_buckets)
        )

    def _open(self, entry: ShardEntry, shape: BucketShape, *, check_buckets: bool) -> MappedShard:
        path = self._folder.path / f"{entry.xxh3_128}.arrow"
        descriptor = self._folder.open_locked(path)
        if descriptor is None:
            descriptor = self._fetch(entry, path)
        with closing_on_error(descriptor):
            with suppress(PermissionError):  # the file belongs to another user
                # set the time of last use: other jobs evict the file with the oldest time first
                os.utime(descriptor)
            try:
                return MappedShard(
                    path,
                    entry,
                    shape,
                    release=partial(os.close, descriptor),
                    check_buckets=check_buckets,
                )
            except DamagedShardError:
                if is_at(descriptor, path):
                    # other processes are not affected, because their mappings stay valid
                    path.unlink(missing_ok=True)
                raise
            except DatasetError as error:
                # this process cannot open or map the file, but the file may be intact
                raise CacheError(str(error)) from error

    def _fetch(self, entry: ShardEntry, path: Path) -> int:
        """Fetch a shard, or wait while another process fetches the same shard.

        Returns:
            Descriptor of the file. The descriptor holds a shared lock.
        """
        part = path.with_suffix(".part")
        while True:
            descriptor = self._folder.open_part(part)
            with closing_on_error(descriptor):
                locked = self._folder.lock(descriptor, fcntl.LOCK_EX, part)
                # another process may have completed the shard during the wait, or just before this
                # process created the .part file
                published = self._folder.open_locked(path)
                if published is None and locked:
                    self._download(entry, descriptor, part, path)
                    # change the lock from exclusive to shared, which never waits
                    fcntl.flock(descriptor, fcntl.LOCK_SH)
                    if is_at(descriptor, path):
                        return descriptor
                elif published is not None and locked:
                    part.unlink(missing_ok=True)
            os.close(descriptor)
            if published is not None:
                return published

    def _download(self, entry: ShardEntry, descriptor: int, part: Path, path: Path) -> None:
        """Write a shard into its locked .part file, verify the file, and publish it.

        Raises:
            DamagedShardError, WrongContentError: the store sent bytes that differ from the
                manifest.
        """
        try:
            self._folder.reserve(descriptor, entry.bytes, entry.name)
            with self._fetching.busy():
                self._copy(entry, descriptor)
            if not self._folder.publish(descriptor, part, path):
                raise DamagedShardError(
                    "the file was removed from the cache while it was being fetched"
                )
        except BaseException:
            if is_at(descriptor, part):
                part.unlink(missing_ok=True)
            raise

    def _copy(self, entry: ShardEntry, descriptor: int) -> None:
        """Copy a shard from the store into an open file, and compare it with the manifest.

        Raises:
            DamagedShardError: the shard's size differs from the manifest.
            WrongContentError: the shard's hash differs from the manifest.
        """
        digest, done = xxhash.xxh3_128(), 0
        for piece in self._store.pieces(entry.name):
            with self._count:
                self.bytes_fetched += len(piece)
            if done + len(piece) > entry.bytes:  # never write beyond the reserved size
                raise DamagedShardError(
                    f"the store sent more than the {entry.bytes} bytes that the manifest says"
                )
            digest.update(piece)
            view, written = memoryview(piece), 0
            while written < len(view):
                with self._folder.errors(needed=entry.bytes - done - written):
                    written += os.pwrite(descriptor, view[written:], done + written)
            done += len(piece)
        if done != entry.bytes:
            raise DamagedShardError(f"the store sent {done} bytes, the manifest says {entry.bytes}")
        if digest.hexdigest() != entry.xxh3_128:
            raise WrongContentError(
                f"the store sent bytes with xxh3_128 {digest.hexdigest()}, "
                f"the manifest says {entry.xxh3_128}",
                digest.hexdigest(),
            )
