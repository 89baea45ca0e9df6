"""Stop the service on SIGTERM or Ctrl-C.

The handler of the signal only writes a byte to a pipe. A thread reads the pipe and sets an event.
If the handler itself set the event, it could wait forever for the event's lock, which the
interrupted main thread may hold.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pipeline.storage.interrupt import INTERRUPTED


class StopSignal:
    """Tells the service to stop.

    requested: set when a signal has arrived.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.since: float | None = None
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT inside this context."""
        threading.Thread(target=self._read, name="thdpack-stop", daemon=True).start()
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.write(self._writing, b"q")

    def wait(self, seconds: float) -> bool:
        """Wait until the service must stop, at most `seconds`. Return whether it must stop."""
        return self.requested.wait(seconds)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        os.write(self._writing, b"s")

    def _read(self) -> None:
        while os.read(self._reading, 1) == b"s":
            if self.since is None:
                self.since = time.monotonic()
            self.requested.set()
            INTERRUPTED.set()  # ends the main thread's retries of requests to stores
