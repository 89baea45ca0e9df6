"""Judge the first letters of a FASTA file, before a build starts.

The first few kilobytes of each input are read to detect its format, and this module judges the same
bytes. If they look odd, it reads and judges up to SAMPLE_BYTES of text, because a single odd record
is no reason to refuse an input.
"""

from __future__ import annotations

import io
import re
import zlib
from contextlib import closing
from typing import Any, BinaryIO, Final, cast

from pipeline.inputs.composition.verdict import (
    CERTAIN,
    NUCLEOTIDES,
    alignment_of,
    nucleotides_in,
)
from pipeline.inputs.decompress import (
    ArchiveNeedsError,
    broken_archive_errors,
    decompressed,
)
from pipeline.inputs.source import Allowed, Source
from pipeline.storage.open_input import open_input
from schemas.errors import InputError
from schemas.vocabulary import GAPS

LOOK_BYTES: Final = 1 << 12
"""Number of bytes of each input to examine first. A read of this size does not start a prefetch
from a store."""
SAMPLE_BYTES: Final = 1 << 20
"""Number of bytes of text to read and judge if an input's first bytes look odd."""

_GAPS: Final = GAPS.encode()
_HEADER_OR_COMMENT: Final = re.compile(rb"(?m)^[>;][^\r\n]*")
_NOT_LETTERS: Final = bytes(set(range(256)) - set(range(65, 91)) - set(range(97, 123)))


def refuse_other_letters(source: Source, head: bytes, allowed: Allowed) -> None:
    """Refuse a FASTA source whose first records are nucleotides or an alignment.

    Args:
        head: first bytes of the file as stored, before decompression.
    Raises:
        InputError: the first records look like nucleotides, or like an alignment.
    """
    if allowed.everything or not head:
        return
    text = _plain(source, head)
    if text is not None and _looks_like_proteins(text):
        return
    sample, whole = _sample(source)
    said = None if allowed.nucleotides else nucleotides_in(_counts(sample), whole)
    if said is None and not allowed.alignment:
        said = alignment_of(_rows(sample, whole))
    if said is not None:
        raise InputError(said.refusal, source=source.url)


def _plain(source: Source, head: bytes) -> bytes | None:
    """Return the text of a file's first bytes; None if they are too few to be decompressed."""
    if source.compression == "none":
        return _unix(head)
    if source.compression != "gzip":
        return None  # the first block of a zstd, xz or bzip2 file may be longer than `head`
    try:
        return _unix(zlib.decompressobj(31).decompress(head, 4 * LOOK_BYTES))
    except zlib.error:  # the task that reads the compressed file raises an error
        return None


def _unix(text: bytes) -> bytes:
    """Replace each carriage return by a line feed."""
    return text.replace(b"\r", b"\n")


def _looks_like_proteins(text: bytes) -> bool:
    """Return whether the first bytes of a FASTA text are certainly proteins."""
    lines = _HEADER_OR_COMMENT.sub(b"", text)
    letters = lines.translate(None, _NOT_LETTERS).upper()
    others = len(letters.translate(None, NUCLEOTIDES))
    return others > CERTAIN * len(letters) and not any(gap in lines for gap in _GAPS)


def _sample(source: Source) -> tuple[bytes, bool]:
    """Return the first SAMPLE_BYTES of a source's text, and whether this is the whole text.

    If the source cannot be read, return no text. The task that reads the source raises the error.
    """
    found = bytearray()
    try:
        with (
            open_input(source.url, until=SAMPLE_BYTES) as raw,
            closing(
                decompressed(cast(BinaryIO, io.BufferedReader(cast(Any, raw))), source.compression)
            ) as stream,
        ):
            while len(found) <= SAMPLE_BYTES and (more := stream.read(1 << 16)):
                found += more
    except (ArchiveNeedsError, InputError, OSError, ValueError):
        return b"", False
    except broken_archive_errors():
        return b"", False
    return _unix(bytes(found[:SAMPLE_BYTES])), len(found) <= SAMPLE_BYTES


def _counts(text: bytes) -> dict[str, int]:
    """Return how often each nucleotide's letter occurs. Key `all` has the number of all letters."""
    letters = _HEADER_OR_COMMENT.sub(b"", text).translate(None, _NOT_LETTERS).upper()
    counts = {chr(letter): letters.count(bytes([letter])) for letter in NUCLEOTIDES}
    return {**counts, "all": len(letters)}


def _rows(text: bytes, whole: bool) -> list[bytes]:
    """Return the residues, gaps included, of each record whose text is complete."""
    bodies = re.split(rb"(?m)^>[^\r\n]*", text)[1:]
    return [b"".join(body.split()) for body in (bodies if whole else bodies[:-1])]
