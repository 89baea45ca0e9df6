"""Headers and comments of FASTA, read plainly: what the kernel does not decide."""

from __future__ import annotations

import re
from typing import Final

from pipeline.inputs.residues import ASCII_BLANKS

NEXT_RECORD: Final = re.compile(rb"[\r\n]>")
_COMMENT: Final = re.compile(rb"(?<=[\r\n]);[^\r\n]*")
_AS_ASCII: Final = bytes(range(128)) + 128 * b"?"
_HEADER: Final = re.compile(rb">[^\r\n]*")
_ASCII_BLANK: Final = re.compile(f"[{ASCII_BLANKS}]")


def header_of(text: bytes | memoryview, at: int) -> bytes:
    """The header line that starts at `at`, without its end."""
    found = _HEADER.match(text, at)
    assert found is not None
    return bytes(found.group())


def identifier_of(header: bytes) -> bytes:
    """The first word of a header; blanks may stand before it."""
    title = header[1:].decode("utf-8", "surrogateescape").rstrip().lstrip(ASCII_BLANKS)
    return _ASCII_BLANK.split(title, maxsplit=1)[0].encode("utf-8", "surrogateescape")


def comments_as_ascii(body: bytes) -> bytes:
    """A record's lines after its header, as long as before, with `?` for what is not ASCII in comments: these may be in any encoding."""
    return _COMMENT.sub(lambda comment: comment.group().translate(_AS_ASCII), body)
