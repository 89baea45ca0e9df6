"""Read headers and comments of those FASTA records that the compiled kernel does not handle."""

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
    """Return the header line that starts at `at`, without its line end."""
    found = _HEADER.match(text, at)
    assert found is not None
    return bytes(found.group())


def divided(header: bytes) -> tuple[bytes, bytes]:
    """Return the id, which is the first word of a header, and the description, which is the rest.

    Blanks before the id are skipped. The description has no blanks at its beginning or end.
    """
    title = header[1:].decode("utf-8", "surrogateescape").strip(ASCII_BLANKS)
    identifier, *rest = _ASCII_BLANK.split(title, maxsplit=1)
    description = "".join(rest).strip(ASCII_BLANKS)
    if not description.strip():  # like Biopython, remove white space at the header's end
        identifier = identifier.rstrip()
    return (
        identifier.encode("utf-8", "surrogateescape"),
        description.encode("utf-8", "surrogateescape"),
    )


def comments_as_ascii(body: bytes) -> bytes:
    """Return a record's lines. In comments, `?` replaces each byte that is not ASCII.

    Comments may be in any encoding. The length of the text stays the same.
    """
    return _COMMENT.sub(lambda comment: comment.group().translate(_AS_ASCII), body)
