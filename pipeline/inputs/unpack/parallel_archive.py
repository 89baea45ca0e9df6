"""Open an archive (a compressed file) on a local disk as a stream of decompressed bytes.

Decoders, by compression:

- gzip: rapidgzip with several threads. It takes about three times the CPU time of isal, because it
  must guess where blocks begin, and decode text that refers to text before the block. So isal is
  faster on few cores (docs/benchmarks.md). Blocks of bgz are independent, so rapidgzip is fast.
- bzip2: rapidgzip's reader of bzip2. Blocks are independent.
- zstd: several frames in threads (`zstd_frames`), a single frame in one thread.
- xz: one thread.
"""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Callable
from typing import Any, BinaryIO, Final, cast

from pipeline.inputs.decompress import (
    DamagedArchiveError,
    decompressed,
    is_bgz,
    refuse_bgz_without_end,
)
from pipeline.inputs.source import Compression
from pipeline.inputs.unpack.end_mark import MARK, WithMark, WithoutMark
from pipeline.inputs.unpack.zstd_frames import ZstdFrames, has_small_frames

FEWEST_GZIP_THREADS = 6
"""With fewer threads, isal decompresses a gzip archive faster than rapidgzip. Measured on two makes
of CPU: rapidgzip with 3.2 and 3.7 threads is as fast as isal, and its other threads take cores from
the workers."""
_BZIP2_END: Final = 0x177245385090
_READ: Final = 1 << 20
_PADDING: Final = 16
"""Number of zero bytes at the end of a gzip file that are taken for padding. rapidgzip does not
accept padding."""


def open_archive(file: BinaryIO, compression: Compression, threads: int) -> BinaryIO:
    """Return a stream of the decompressed bytes of an archive. Callers must close the stream.

    Reading raises the errors of `pipeline.inputs.decompress.decompressed`.

    Args:
        file: the archive, seekable, positioned at its start.
        threads: number of threads that may decompress.
    """
    size = file.seek(0, io.SEEK_END)
    if compression == "gzip":
        refuse_bgz_without_end(file)
        if (threads >= FEWEST_GZIP_THREADS or is_bgz(file)) and not _is_padded(file, size):
            return _marked(file, gzip.compress(MARK, mtime=0), _rapidgzip, threads)
    elif compression == "bzip2" and _ends_with_footer(file, size):
        return _marked(file, bz2.compress(MARK), _rapid_bzip2, threads)
    elif compression == "zstd" and has_small_frames(file, size):
        return cast(BinaryIO, ZstdFrames(file, size, threads))
    file.seek(0)
    return decompressed(file, compression)


def _is_padded(file: BinaryIO, size: int) -> bool:
    file.seek(max(0, size - _PADDING))
    return not any(file.read(_PADDING))


def _ends_with_footer(file: BinaryIO, size: int) -> bool:
    """Return whether a bzip2 archive ends with the footer of a stream.

    If it does not, rapidgzip would skip a stream that ends in its first bytes. A footer consists of
    48 bits of `_BZIP2_END`, a checksum of 32 bits, and up to 7 bits that fill the last byte.
    """
    file.seek(max(0, size - 11))
    tail = int.from_bytes(file.read(11))
    return any(tail >> 32 + fill & (1 << 48) - 1 == _BZIP2_END for fill in range(8))


def _marked(
    file: BinaryIO, mark: bytes, decoder: Callable[[Any, int], Any], threads: int
) -> BinaryIO:
    """Return the text that a decoder reads from an archive and the mark."""
    text = _Damaged(WithoutMark(decoder(WithMark(file, mark), threads)))
    return cast(BinaryIO, io.BufferedReader(text, _READ))  # `WithoutMark` needs long buffers


def _rapidgzip(source: Any, threads: int) -> Any:
    import rapidgzip

    return rapidgzip.open(source, parallelization=threads)


def _rapid_bzip2(source: Any, threads: int) -> Any:
    import rapidgzip

    return rapidgzip.IndexedBzip2File(source, parallelization=threads)


class _Damaged(io.RawIOBase):
    """A stream that turns rapidgzip's errors into DamagedArchiveError."""

    def __init__(self, text: WithoutMark) -> None:
        super().__init__()
        self._text = text

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._text.readinto(buffer)
        except (ValueError, RuntimeError) as error:
            # rapidgzip raises both, with messages about its own code
            raise DamagedArchiveError(
                "the file is damaged or truncated, or something was appended to it"
            ) from error

    def close(self) -> None:
        self._text.close()
        super().close()
