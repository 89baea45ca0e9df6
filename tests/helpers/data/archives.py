"""Compress test inputs in every supported format. An archive is a compressed file. It may have
several parts, which are complete compressed files end to end."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import sys
import zlib
from collections.abc import Callable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def bgzip(data: bytes, block: int = 5000) -> bytes:
    """Return `data` as BGZF: gzip members with a BC field, the last one empty.

    Section 4.1 of the SAM specification defines the format.
    """
    blocks = []
    for chunk in [data[i : i + block] for i in range(0, len(data), block)] + [b""]:
        deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
        body = deflate.compress(chunk) + deflate.flush()
        extra = b"BC" + struct.pack("<HH", 2, len(body) + 25)
        header = b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff" + struct.pack("<H", 6) + extra
        blocks.append(header + body + struct.pack("<II", zlib.crc32(chunk), len(chunk)))
    return b"".join(blocks)


def zstandard(data: bytes) -> bytes:
    """Return a zstd frame with a checksum, as the zstd command writes frames."""
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


def skippable(content: bytes) -> bytes:
    """Return a zstd frame that readers skip. pzstd writes such a frame before each data frame."""
    return b"\x50\x2a\x4d\x18" + struct.pack("<I", len(content)) + content


KINDS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, mtime=0),
    "bgz": bgzip,
    "zst": zstandard,
    "xz": lzma.compress,
    "bz2": bz2.compress,
}


def in_parts(kind: str, data: bytes, parts: int) -> bytes:
    """Return `data` as `parts` concatenated archives of the given kind."""
    size = -(-len(data) // parts)
    return b"".join(KINDS[kind](data[i : i + size]) for i in range(0, len(data), size))
