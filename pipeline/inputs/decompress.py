"""Decompress inputs into plain byte streams, in bounded memory.

The compression is detected from the content. A compressed file is called an archive here. It may
have several parts in a row: gzip members, zstd frames, xz streams or bzip2 streams. If a later part
of an xz or bzip2 file is damaged near its start, Python's own readers stop without an error and
lose the remaining data. This module raises an error instead.
"""

from __future__ import annotations

import bz2
import io
import lzma
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol, cast

from pipeline.inputs.source import Compression

_ZSTD: Final = (
    b"\x28\xb5\x2f\xfd",
    *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60)),
)
"""First bytes of zstd frames, and of skippable frames, with which files from pzstd begin."""
_MAGIC: Final[tuple[tuple[bytes, Compression], ...]] = (
    (b"\x1f\x8b", "gzip"),  # also bgz: gzip with many members
    *((magic, "zstd") for magic in _ZSTD),
    (b"\xfd7zXZ\x00", "xz"),
    (b"BZh", "bzip2"),
)
_XZ_MEMORY: Final = 256 << 20
"""Memory limit for xz, in bytes. Files of xz -9 need 65 MiB. Malicious files could need 4 GiB."""
_ZSTD_WINDOW_LOG: Final = 27
"""Largest zstd window, as log2 of bytes: 128 MiB, the default limit of the zstd command."""
_BGZF_START: Final = b"\x1f\x8b\x08\x04"
_BGZF_END: Final = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
"""The empty block at the end of every bgz file (SAM specification, 4.1.2)."""
_NO_END_BLOCK: Final = "the empty block that bgzip writes at the end is missing"
_READ: Final = 1 << 16
_UNSPECIFIC: Final = ("Invalid data stream", "Corrupt input data")
"""Python's messages for damaged bzip2 and xz files. They do not name the kind of damage."""


class DamagedArchiveError(Exception):
    """An archive is damaged. The message is empty if the cause is unknown."""


class NoEndBlockError(EOFError):
    """A bgz archive is truncated: the empty block that bgzip writes last is missing."""


class ArchiveNeedsError(Exception):
    """An intact archive needs a dictionary, or more memory than the limit. The message names the
    remedy."""


def detect(head: bytes) -> Compression:
    """Return the compression of a file that starts with `head`."""
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    return "none"


def decompressed(raw: BinaryIO, compression: Compression) -> BinaryIO:
    """Return a stream of the decompressed bytes of all parts of an archive.

    Callers must close the stream, because a gzip stream has a thread.

    Reading raises EOFError if the archive is truncated, and one of `broken_archive_errors` if it is
    damaged. Reading raises ArchiveNeedsError if the archive needs a dictionary or too much memory.
    """
    if compression == "none":
        return raw
    if compression == "gzip":
        from isal import igzip_threaded

        # a thread decompresses the next two blocks while the caller parses a block
        stream = igzip_threaded.open(  # type: ignore[no-untyped-call] # isal has no types
            _Blocks(raw), "rb", threads=1, block_size=8 << 20
        )
        return cast(BinaryIO, stream)
    return cast(BinaryIO, io.BufferedReader(_Parts(raw, _kind(compression))))


def broken_archive_errors() -> tuple[type[Exception], ...]:
    """Return the types of errors that `decompressed` streams of damaged archives raise."""
    import gzip
    import zlib

    from isal import isal_zlib

    return (
        EOFError,
        DamagedArchiveError,
        gzip.BadGzipFile,
        zlib.error,
        cast("type[Exception]", isal_zlib.error),
    )


def is_bgz(file: BinaryIO) -> bool:
    """Return whether bgzip wrote a seekable gzip file."""
    file.seek(0)
    head = file.read(14)
    return head.startswith(_BGZF_START) and head[12:] == b"BC"


def refuse_bgz_without_end(file: BinaryIO) -> None:
    """Refuse a seekable bgz file without the empty block at its end; see `_Blocks`.

    Raises:
        NoEndBlockError: the file is truncated.
    """
    if is_bgz(file):
        size = file.seek(0, io.SEEK_END)
        file.seek(max(0, size - len(_BGZF_END)))
        if file.read() != _BGZF_END:
            raise NoEndBlockError(_NO_END_BLOCK)


class _Blocks:
    """A gzip file. If bgzip wrote the file, its last block must be bgzip's empty block.

    bgzip writes one complete gzip member after another, and at the end an empty block. If a file
    ends between two members, only the missing empty block shows that it is incomplete.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._head = self._tail = b""

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = cast(int, self._raw.readinto(view))  # type: ignore[attr-defined]
        if len(self._head) < len(_BGZF_END):
            self._head += bytes(view[: min(count, len(_BGZF_END))])
        if count:
            self._tail = (self._tail + bytes(view[max(0, count - len(_BGZF_END)) : count]))[
                -len(_BGZF_END) :
            ]
        elif (
            len(view)
            and self._head.startswith(_BGZF_START)
            and self._head[12:14] == b"BC"
            and self._tail != _BGZF_END
        ):
            raise NoEndBlockError(_NO_END_BLOCK)
        return count

    def read(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(buffer)])

    def close(self) -> None:
        """Do nothing, because the caller closes the file that it opened."""


class _Decoder(Protocol):
    """Common interface of the decompressors of bz2, lzma and zstd."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """Properties of one kind of archive.

    new: function that creates a decoder
    magics: possible first bytes of a part
    errors: errors that `new` and its decoder raise
    padded: whether zeros may lie between parts
    """

    new: Callable[[], _Decoder]
    magics: tuple[bytes, ...]
    errors: tuple[type[Exception], ...]
    padded: bool = False


def _kind(compression: Compression) -> _Kind:
    if compression == "bzip2":
        return _Kind(new=bz2.BZ2Decompressor, magics=(b"BZh",), errors=(OSError,))
    if compression == "xz":
        return _Kind(
            new=lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY),
            magics=(b"\xfd7zXZ\x00",),
            errors=(lzma.LZMAError,),
            padded=True,
        )
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
    return _Kind(
        new=lambda: cast(_Decoder, zstd.ZstdDecompressor(options=options)),
        magics=_ZSTD,
        errors=(zstd.ZstdError,),
    )


class _Parts(io.RawIOBase):
    """The plain bytes of all parts of an archive."""

    def __init__(self, raw: BinaryIO, kind: _Kind) -> None:
        super().__init__()
        self._raw = raw
        self._kind = kind
        self._decoder = kind.new()
        self._rest = b""  # bytes that were read, but not yet passed to the decoder

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        while len(view):
            if self._decoder.eof and not self._next_part():
                return 0
            data = b""
            if self._decoder.needs_input:
                data, self._rest = self._rest or self._raw.read(_READ), b""
                if not data:
                    raise EOFError("the archive ended before its end marker")
            plain = self._decoded(data, len(view))
            if plain:
                view[: len(plain)] = plain
                return len(plain)
        return 0

    def _decoded(self, data: bytes, most: int) -> bytes:
        try:
            return self._decoder.decompress(data, most)
        except self._kind.errors as error:
            message = str(error)
            if "too much memory" in message or "Memory usage limit" in message:
                raise ArchiveNeedsError(
                    "unpacking it takes more memory than the limit (zstd: a window of 128 MiB, "
                    "xz: 256 MiB); unpack it first, for example in a pipe: "
                    "zstd -dc --long=31 FILE | thdpack preprocess -"
                ) from error
            if "Dictionary mismatch" in message:
                raise ArchiveNeedsError(
                    "packed with a zstd dictionary, which is not in the file; unpack it first"
                ) from error
            raise DamagedArchiveError("" if message in _UNSPECIFIC else message) from error

    def _next_part(self) -> bool:
        """Begin to read the next part, or return False at the end of the archive.

        Raises:
            DamagedArchiveError: the last part is followed by other data.
        """
        self._rest = self._decoder.unused_data
        if self._kind.padded:
            self._skip_padding()
        longest = max(map(len, self._kind.magics))
        while len(self._rest) < longest and (more := self._raw.read(_READ)):
            self._rest += more
        if not self._rest:
            return False
        if not self._rest.startswith(self._kind.magics):
            raise DamagedArchiveError(
                "a complete part is followed by data that is not an archive of this kind: the "
                "file is damaged there, or something was appended"
            )
        self._decoder = self._kind.new()
        return True

    def _skip_padding(self) -> None:
        zeros = 0
        while found := self._rest or self._raw.read(_READ):
            self._rest = found.lstrip(b"\0")
            zeros += len(found) - len(self._rest)
            if self._rest:
                break
        if zeros % 4:
            raise DamagedArchiveError(f"{zeros} zeros of padding, expected a multiple of 4")
