"""Decompress the frames of a zstd archive in several threads.

`pzstd`, and programs that write seekable archives, write frames of a few MB. `zstd` itself writes a
single frame, which only one thread can decompress.

The end of a frame is found from the sizes in its block headers (RFC 8878, section 3.1.1), without
decompressing the frame.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Final

from pipeline.inputs.decompress import decompressed

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_MOST_FRAME: Final = 32 << 20
"""Maximum size of a compressed frame in bytes that is decompressed in memory."""
_HEADER: Final = 18
"""Maximum size of a frame's header in bytes, with the magic number."""


def frame_end(file: BinaryIO, begin: int) -> int | None:
    """Return the end of the frame that begins at `begin`.

    Return None if no frame begins there, or if the archive ends inside the frame.
    """
    file.seek(begin)
    head = file.read(_HEADER)
    if len(head) >= 8 and head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] < 0x60:
        return begin + 8 + int.from_bytes(head[4:8], "little")  # a skippable frame
    if len(head) < 6 or head[:4] != _MAGIC:
        return None
    flags = head[4]
    single = flags >> 5 & 1
    content_size = (1 if single else 0, 2, 4, 8)[flags >> 6]
    at = begin + 5 + (1 - single) + (0, 1, 2, 4)[flags & 3] + content_size
    while True:
        file.seek(at)
        header = int.from_bytes(block := file.read(3), "little")
        if len(block) < 3:
            return None
        kind, size = header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == 1 else size)  # a block of kind 1 repeats one byte
        if header & 1:
            return at + (4 if flags >> 2 & 1 else 0)  # the checksum


def has_small_frames(file: BinaryIO, size: int) -> bool:
    """Return whether an archive consists of several frames, of which the first is small."""
    end = frame_end(file, 0)
    return end is not None and end < min(size, _MOST_FRAME)


class ZstdFrames(io.RawIOBase):
    """The decoded text of a zstd archive, whose frames several threads decompress."""

    def __init__(self, file: BinaryIO, size: int, threads: int) -> None:
        """
        Args:
            size: size of the archive in bytes.
            threads: number of threads. At most twice as many frames are in memory.
        """
        super().__init__()
        self._file = file
        self._size = size
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="thdpack-zstd")
        self._begun: deque[Future[bytes]] = deque()
        self._most = 2 * threads
        self._ends = self._groups()
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises:
        EOFError: the archive is truncated.
        DamagedArchiveError: a frame is damaged.
        """
        view = memoryview(buffer).cast("B")
        while not self._text:
            self._begin_more()
            if not self._begun:
                return 0
            self._text = memoryview(self._begun.popleft().result())
        count = min(len(view), len(self._text))
        view[:count] = self._text[:count]
        self._text = self._text[count:]
        return count

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        super().close()

    def _begin_more(self) -> None:
        while len(self._begun) < self._most:
            frames = next(self._ends, None)
            if frames is None:
                return
            self._begun.append(self._pool.submit(_plain, frames))

    def _groups(self) -> Iterator[bytes]:
        """Yield groups of whole frames, each of about 4 MiB or one larger frame."""
        begin = at = 0
        while at < self._size:
            end = frame_end(self._file, at)
            # damaged, truncated or too large: one thread reads the rest, and reports what is wrong
            at = self._size if end is None or end > self._size else end
            if at - begin > 4 << 20 or at == self._size:
                self._file.seek(begin)
                yield self._file.read(at - begin)
                begin = at


def _plain(frames: bytes) -> bytes:
    """Return the decoded text of whole frames."""
    return decompressed(io.BytesIO(frames), "zstd").read()
