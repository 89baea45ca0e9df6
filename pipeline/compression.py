"""Compressed inputs as plain byte streams. The kind is told by content, not by name. Memory is bounded: nothing is inflated whole."""

from __future__ import annotations

import bz2
import lzma
from typing import BinaryIO, Final, Literal, cast

Compression = Literal["none", "gzip", "zstd", "xz", "bzip2"]

_MAGIC: Final[tuple[tuple[bytes, Compression], ...]] = (
    (b"\x1f\x8b", "gzip"),  # bgz too: it is gzip in many members
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"BZh", "bzip2"),
)


def detect(head: bytes) -> Compression:
    """The compression of a file that starts with `head`."""
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    return "none"


def decompressed(raw: BinaryIO, compression: Compression) -> BinaryIO:
    """A stream of the plain bytes; several members, frames or streams in a row read as one.

    Reading raises EOFError where the archive is cut off, and the library's own error (see `BROKEN`) where it is damaged.
    """
    if compression == "none":
        return raw
    if compression == "gzip":
        from isal import igzip_threaded

        # two blocks are inflated ahead, while what was read before is parsed
        return cast(BinaryIO, igzip_threaded.open(raw, "rb", threads=1, block_size=8 << 20))  # type: ignore[no-untyped-call]
    if compression == "zstd":
        from backports import zstd

        return cast(BinaryIO, zstd.ZstdFile(raw, "rb"))
    return cast(BinaryIO, lzma.LZMAFile(raw) if compression == "xz" else bz2.BZ2File(raw))


def broken_archive_errors() -> tuple[type[Exception], ...]:
    """What the streams of `decompressed` raise for a damaged or truncated archive; of bzip2, OSError."""
    import gzip
    import zlib

    from backports import zstd
    from isal import isal_zlib

    errors: list[type[Exception]] = [EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, zstd.ZstdError, cast("type[Exception]", isal_zlib.error)]
    return tuple(errors)
