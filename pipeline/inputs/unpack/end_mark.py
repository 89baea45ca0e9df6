"""Detect a truncated archive with a decoder that does not report truncation.

rapidgzip 0.16 returns fewer bytes, and no error, if a gzip archive ends inside a member. So the
decoder is given the archive followed by one more member, whose text is a mark. If the decoded text
ends with the mark, the decoder has read the archive to its end: inside an incomplete member, it
would take the bytes of the mark's member for compressed data.
"""

from __future__ import annotations

import io
import os
from typing import Any, BinaryIO, Final

MARK: Final = b"; end of the archive"
"""Text of the added member. A FASTA record cannot begin inside it."""


class WithMark(io.RawIOBase):
    """A seekable file: the content of an archive, followed by the compressed mark.

    It has the methods that rapidgzip calls, and no buffer, because rapidgzip's threads read at many
    positions.
    """

    def __init__(self, file: BinaryIO, mark: bytes) -> None:
        """
        Args:
            file: the archive, a file of the operating system.
            mark: MARK, compressed as a part (member or stream) of the archive's format.
        """
        super().__init__()
        self._descriptor = file.fileno()
        self._size = os.fstat(self._descriptor).st_size
        self._mark = mark
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size + len(self._mark)}
        self._at = starts[whence] + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, or fewer at the end."""
        parts = []
        if size < 0:
            size = self._size + len(self._mark) - self._at
        while size and self._at < self._size:
            part = os.pread(self._descriptor, min(size, self._size - self._at), self._at)
            if not part:
                break  # the file has become shorter
            parts.append(part)
            self._at += len(part)
            size -= len(part)
            os.lseek(self._descriptor, self._at, os.SEEK_SET)  # the file's position shows progress
        if size and self._at >= self._size:
            begin = self._at - self._size
            parts.append(self._mark[begin : begin + size])
            self._at += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)


class WithoutMark(io.RawIOBase):
    """The decoded text of an archive, without the mark at its end."""

    def __init__(self, decoded: Any) -> None:
        """
        Args:
            decoded: decoder that reads a `WithMark`.
        """
        super().__init__()
        self._decoded = decoded
        self._held = b""  # the last bytes that were read; they may be the mark

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read decoded text into a buffer that is longer than the mark.

        Raises:
            EOFError: the text does not end with the mark, so the archive is truncated.
        """
        view = memoryview(buffer).cast("B")
        assert len(view) > len(MARK)
        while True:
            held = len(self._held)
            view[:held] = self._held
            count: int = held + self._decoded.readinto(view[held:])
            if count == held:
                if self._held != MARK:
                    raise EOFError("the archive ended before its end marker")
                return 0
            kept = max(0, count - len(MARK))
            self._held = bytes(view[kept:count])
            if kept:
                return kept

    def close(self) -> None:
        self._decoded.close()
        super().close()
