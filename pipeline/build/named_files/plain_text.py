"""Open a file that an option names, and decompress it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from pipeline.build.named_files.named_file import NamedFile
from pipeline.inputs.decompress import detect
from pipeline.inputs.error_location import plain_text
from pipeline.inputs.source import Source
from pipeline.storage.open_input import open_input

_HEAD_BYTES = 16


@contextmanager
def named_text(file: NamedFile) -> Iterator[BinaryIO]:
    """Open a buffered stream of a named file's decompressed bytes.

    The compression (gz, bgz, zst, xz, bz2) is detected from the file's first bytes.

    Raises:
        InputError: the file cannot be read, or is a damaged archive (compressed file).
    """
    with open_input(file.url, until=_HEAD_BYTES) as raw:
        head = raw.read(_HEAD_BYTES)
    source = Source(
        url=file.url,
        name=file.name,
        bytes=file.bytes,
        fingerprint=file.fingerprint,
        format="",
        compression=detect(head),
        piece=0,
    )
    with plain_text(source) as stream:
        yield stream
