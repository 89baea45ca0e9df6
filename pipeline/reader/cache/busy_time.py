"""Measure for how long at least one of several threads was busy."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class BusyTime:
    """Length of the union of intervals in which threads are busy, in seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._begin = self._total = 0.0

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count the time of the context. Contexts of several threads may overlap."""
        with self._lock:
            if not self._running:
                self._begin = time.perf_counter()
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._total += time.perf_counter() - self._begin

    @property
    def seconds(self) -> float:
        """Seconds in which at least one thread was busy. Intervals that still run count, too."""
        with self._lock:
            running = time.perf_counter() - self._begin if self._running else 0.0
            return self._total + running
