"""An error in FASTA text at a byte offset, and a function that finds an offset's line number."""

from __future__ import annotations

from typing import BinaryIO, Final

_BLOCK: Final = 1 << 20


class FastaSyntaxError(Exception):
    """A rule of FASTA is broken at byte `offset` of the decompressed file.

    The parser does not know line numbers, because it reads only a part of a file.
    `pipeline.inputs.error_location` reads the file again to find the line.
    """

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, offset)
        self.message = message
        self.offset = offset


def line_of(stream: BinaryIO, offset: int) -> int:
    """Return the number, from 1, of the line that holds byte `offset` of a stream.

    The stream must be positioned at its start. If it has fewer than `offset` bytes, return the
    number of its last line. A lone carriage return also ends a line.
    """
    lines, seen, carry, block = 1, 0, b"", b""
    while seen < offset:
        last = block
        block = stream.read(min(_BLOCK, offset - seen))
        if not block:
            return max(1, lines - last.endswith((b"\n", b"\r")))
        seen += len(block)
        lines += block.count(b"\n") + block.count(b"\r") - (carry + block).count(b"\r\n")
        carry = block[-1:] if block.endswith(b"\r") else b""
    return lines
