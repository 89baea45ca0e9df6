"""Content hashes of inputs, computed while the inputs are read.

An input is hashed in pieces of equal size, so that several tasks can share the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, cast

import xxhash

from pipeline.inputs.source import Source
from pipeline.storage.open_input import open_input

_BLOCK: Final = 1 << 20


class _ReadOnce:
    """Base of binary streams that are read once, from start to end."""

    closed = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class HashingReader(_ReadOnce):
    """A binary stream that hashes its content in pieces (see `content_hash`) while it is read.

    piece: number of bytes in each piece. The last piece may be shorter.
    size: number of bytes to hash; None for all. Later bytes are read, but not hashed.
    """

    def __init__(self, file: BinaryIO, *, piece: int, size: int | None) -> None:
        self._file = file
        self._piece = piece
        self._left = size
        self._hash = xxhash.xxh3_128()
        self._room = piece
        self._pieces: list[str] = []

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._add(memoryview(data))
        return data

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = cast(int, self._file.readinto(view))  # type: ignore[attr-defined]
        self._add(view[:count])
        return count

    def _add(self, data: memoryview) -> None:
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        while len(data):
            part = data[: self._room]
            self._hash.update(part)
            self._room -= len(part)
            data = data[len(part) :]
            if self._room == 0:
                self._next()

    def _next(self) -> None:
        self._pieces.append(self._hash.hexdigest())
        self._hash.reset()
        self._room = self._piece

    def finish(self) -> list[str]:
        """Read and hash the remaining bytes. Return the xxh3_128 of every piece."""
        while self._left != 0 and self.read(_BLOCK):
            pass
        if self._room < self._piece:
            self._next()
        return self._pieces

    def close(self) -> None:
        self._file.close()
        super().close()


def content_hash(pieces: Sequence[str]) -> str:
    """Return the content hash of an input for the manifest. See docs/reference/format.md.

    For an input of one piece, this is the xxh3_128 of that piece. Otherwise it is the xxh3_128 of
    the concatenated digests of all pieces.
    """
    return (
        pieces[0] if len(pieces) == 1 else xxhash.xxh3_128_hexdigest(bytes.fromhex("".join(pieces)))
    )


def hash_range(source: Source, begin: int, end: int, on_bytes: Callable[[int], None]) -> list[str]:
    """Return the xxh3_128 of each piece of a source's byte range.

    Raises:
        InputError: the source cannot be read.
    """
    with hashed_range(source, begin, end, on_bytes) as hashing:
        return hashing.finish()


@contextmanager
def hashed_range(
    source: Source, begin: int, end: int, on_bytes: Callable[[int], None]
) -> Iterator[HashingReader]:
    """Open a source at byte `begin`, and hash its bytes up to `end` while they are read."""
    whole = is_whole(source, begin, end)
    with open_input(source.url, at=begin, until=None if whole else end) as raw:
        yield HashingReader(
            cast(BinaryIO, _Counting(raw, on_bytes)),
            piece=source.piece,
            size=None if whole else end - begin,
        )


def is_whole(source: Source, begin: int, end: int) -> bool:
    """Return whether a range covers a whole source.

    A whole source is read to its end, because a web server may not report the size.
    """
    return begin == 0 and end == source.bytes


class _Counting(_ReadOnce):
    """A file that reports how many bytes (before decompression) each read returned."""

    def __init__(self, file: BinaryIO, on_bytes: Callable[[int], None]) -> None:
        self._file = file
        self._on_bytes = on_bytes

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._on_bytes(len(data))
        return data

    def readinto(self, buffer: memoryview) -> int:
        count = cast(int, self._file.readinto(buffer))  # type: ignore[attr-defined]
        self._on_bytes(count)
        return count
