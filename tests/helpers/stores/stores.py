"""Stores for tests of the reader: a file system with simulated faults, and an HTTP server."""

from __future__ import annotations

import http.server
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tests.helpers.stores.byte_ranges import send_range


class Trouble:
    """Faults that a test injects into the stores of its process.

    errors, short_reads, flipped_bits, stalls: number of faults of each kind that are still to come.
    stall_seconds: duration of a stall.
    """

    errors = 0
    short_reads = 0
    flipped_bits = 0
    stalls = 0
    stall_seconds = 0.0
    over = threading.Event()
    """Event that ends all stalls."""
    read_seconds = 0.0
    """Additional time of every read of a shard, in seconds."""
    only = ""
    """Only shards whose path ends with this text have faults. "" means all shards."""
    opened: list[str] = []  # noqa: RUF012 (shared on purpose)
    _lock = threading.Lock()

    @classmethod
    def reset(cls) -> None:
        cls.errors = cls.short_reads = cls.flipped_bits = cls.stalls = 0
        cls.over.set()
        cls.over = threading.Event()
        cls.read_seconds = 0.0
        cls.only = ""
        cls.opened = []

    @classmethod
    def strikes(cls, kind: str) -> bool:
        """Return whether a fault of this kind is due, and decrement its count."""
        with cls._lock:
            left: int = getattr(cls, kind)
            setattr(cls, kind, max(0, left - 1))
            return left > 0


class TroubledFile:
    """An open file. If the file is a shard, its reads may raise errors, end early, return flipped
    bits, or stall.
    """

    def __init__(self, file: Any, path: str) -> None:
        self._file = file
        self._troubled = path.endswith(".arrow") and path.endswith(Trouble.only)
        self._ended = False

    def read(self, size: int = -1) -> bytes:
        if self._ended:
            return b""
        if not self._troubled:
            return bytes(self._file.read(size))
        time.sleep(Trouble.read_seconds)
        if Trouble.strikes("stalls"):
            Trouble.over.wait(Trouble.stall_seconds)
        if Trouble.strikes("errors"):
            raise ConnectionResetError("the store hung up")
        if Trouble.strikes("short_reads"):
            self._ended = True
            return bytes(self._file.read(100))
        data = bytearray(self._file.read(size))
        if data and Trouble.strikes("flipped_bits"):
            # another bit each time: the same wrong bytes twice would mean a damaged object
            data[(len(data) // 2 + Trouble.flipped_bits) % len(data)] ^= 4
        return bytes(data)

    def __enter__(self) -> TroubledFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class TroubledStore(LocalFileSystem):  # type: ignore[misc]
    """Local file system with the faults of a remote store. URLs are troubled:///absolute/path."""

    protocol = "troubled"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("troubled://").rstrip("/") or "/"

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        Trouble.opened.append(path)
        file = super().open(path, mode, **options)
        return TroubledFile(file, path) if mode == "rb" else file


fsspec.register_implementation("troubled", TroubledStore, clobber=True)


@contextmanager
def http_store(folder: Path) -> Iterator[str]:
    """Serve a folder by HTTP on the loopback interface, and yield its URL. The server supports byte
    ranges, like object stores.
    """

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path = Path(self.translate_path(self.path))
            if not path.is_file():
                self.send_error(404)
                return
            send_range(self, path.read_bytes(), "Accept-Ranges", "bytes")

    def handler(*arguments: Any) -> Handler:
        return Handler(*arguments, directory=str(folder))

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def open_in(folder: Path) -> list[str]:
    """Return the descriptors of the files in a folder that this process has open."""
    descriptors = Path("/proc/self/fd").iterdir()
    return [path.name for path in descriptors if os.path.realpath(path).startswith(str(folder))]
