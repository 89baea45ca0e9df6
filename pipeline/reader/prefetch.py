"""Prefetch shards in a few threads. The threads do not stop the interpreter from exiting."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final

from pipeline.reader.mapped_shard import MappedShard
from pipeline.storage.retries import ClosedError

_THREADS: Final = 4
"""Maximum number of threads. Each thread fetches, verifies and maps one shard at a time."""
_JOIN_SECONDS: Final = 10.0


class ShardLoader:
    """Holds the shards in use, and opens the next shards before they are needed."""

    def __init__(
        self, open_shard: Callable[[int], MappedShard], *, threads: int, stopped: threading.Event
    ) -> None:
        """Start the threads. With 0 threads, the thread that needs a shard opens it itself."""
        self._open = open_shard
        self._stopped = stopped
        self._lock = threading.Condition()
        self._wanted: dict[int, Future[MappedShard]] = {}
        self._queue: deque[int] = deque()
        self._threads = [
            threading.Thread(target=self._work, name="thdpack-reader", daemon=True)
            for _ in range(min(threads, _THREADS))
        ]
        for thread in self._threads:
            thread.start()

    def want(self, shards: Iterable[int]) -> None:
        """Set the shards that are needed now and next, in order, and release all other shards.

        Raises:
            ClosedError: `stop` was called.
        """
        with self._lock:
            if self._stopped.is_set():
                raise ClosedError()
            let_go, self._wanted = self._wanted, {}
            for shard in dict.fromkeys(shards):
                # shards repeat in a small dataset, where an epoch has few shards
                self._wanted[shard] = let_go.pop(shard) if shard in let_go else Future()
            self._queue = deque(
                shard for shard, future in self._wanted.items() if _is_pending(future)
            )
            self._lock.notify_all()
        _let_go(let_go.values())

    def get(self, shard: int) -> MappedShard:
        """Return a wanted shard.

        The calling thread opens the shard if no other thread has begun to open it, or if an earlier
        attempt failed.

        Raises:
            DatasetError: the shard is damaged or unreachable. The next call tries again.
            ClosedError: `stop` was called.
        """
        with self._lock:
            if self._stopped.is_set():
                raise ClosedError()
            future = self._wanted[shard]
            if future.done() and future.exception() is not None:
                future = self._wanted[shard] = Future()
            mine = _is_pending(future) and future.set_running_or_notify_cancel()
        if mine:
            self._fulfil(shard, future)
        return future.result()

    def stop(self) -> None:
        """End the threads and release every shard.

        The method does not wait for a thread that hangs in a request to a store.
        """
        with self._lock:
            self._stopped.set()
            let_go, self._wanted = self._wanted, {}
            self._lock.notify_all()
        _let_go(let_go.values())
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=_JOIN_SECONDS)

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._queue and not self._stopped.is_set():
                    self._lock.wait()
                if self._stopped.is_set():
                    return
                shard = self._queue.popleft()
                future = self._wanted[shard]
                if not (_is_pending(future) and future.set_running_or_notify_cancel()):
                    continue
            self._fulfil(shard, future)
            del future  # otherwise the shard stays mapped until this thread opens another shard

    def _fulfil(self, shard: int, future: Future[MappedShard]) -> None:
        try:
            future.set_result(self._open(shard))
        except BaseException as error:  # `get` raises it
            future.set_exception(error)


def _is_pending(future: Future[MappedShard]) -> bool:
    """Return True if no thread has begun to open the shard."""
    return not future.running() and not future.done()


def _let_go(futures: Iterable[Future[MappedShard]]) -> None:
    """Release shards that are no longer wanted. A shard that a thread is still opening is released
    as soon as the shard is open."""
    for future in futures:
        if not future.cancel():
            future.add_done_callback(_release)


def _release(future: Future[MappedShard]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().release()
