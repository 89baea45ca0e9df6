"""Divide a stream into runs. A run holds consecutive whole FASTA records.

If a file is cut into consecutive byte ranges, each record belongs to exactly one range. Memory is
bounded by the longest record, and by the number of bytes that are read at a time.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO, Final

from pipeline.inputs.fasta.line_numbers import FastaSyntaxError
from pipeline.inputs.file_kinds import CONVERT

CHUNK_BYTES: Final = 1 << 20
"""Number of bytes read at a time, few enough to stay in a core's cache until the text is parsed."""
MAX_RECORD_BYTES: Final = 128 << 20
"""Maximum length of a record in bytes. All proteins are far shorter. The limit stops a file
without line ends from filling the memory."""
_OVERLAP: Final = 64 << 10
"""Size in bytes of the first read beyond a range, to find the end of the range's last record. Later
reads beyond the range are longer."""

_BLANK_LINE: Final = re.compile(rb"[ \t\v\f]*(?:;[^\r\n]*)?(?:\r\n|\r|\n|\Z)")
_CONTROL: Final = re.compile(rb"[\0-\x08\x0e-\x1f]")
"""Control characters that do not occur in text."""
_NO_HEADER: Final = (
    "expected '>' before residues: write a line such as >name before this line, or remove this line"
)
_LOOKED_AT: Final = 512
"""Number of bytes in which to look for these control characters."""


def whole_records(
    stream: BinaryIO, begin: int, end: int | None, chunk_bytes: int
) -> Iterator[tuple[memoryview, int]]:
    """Yield the records of the byte range [begin, end) in runs, each with its offset in the file.

    Raises:
        FastaSyntaxError: text precedes the first record, or a record is too long.
    """
    buffer = bytearray(chunk_bytes)
    filled, base = 0, begin  # buffer[0] is byte `base` of the file
    started = at_end = False
    overlap = _OVERLAP
    while True:
        wanted = len(buffer) if end is None else min(len(buffer), max(filled, end - base) + overlap)
        # Each attempt to find the end of the last record searches the whole buffer. Doubling the
        # overlap keeps the number of attempts small.
        overlap = 2 * overlap if end is not None and base + filled > end else _OVERLAP
        filled = _fill(stream, buffer, filled, wanted)
        at_end = filled < wanted
        start = 0
        if not started:
            first = (
                _first_record(buffer, filled, base, at_end)
                if begin == 0
                else _boundary(buffer, 0, filled)
            )
            started = first is not None
            start = first if first is not None else filled - 1 if begin > 0 else 0
            if end is not None and _belongs_to_later_range(
                buffer, start, filled, base, end, begin, started
            ):
                return
        stop = filled if at_end else None
        if started and end is not None and base + filled > end:
            beyond = _boundary(buffer, max(start, end - base), filled)
            if beyond is not None:
                stop, at_end = beyond, True
        if started and stop is None:
            stop = last_boundary(buffer, start, filled)
        if stop is not None and stop > start and started:
            yield memoryview(buffer)[start:stop], base + start
            start = stop
        if at_end:
            return
        if start == 0 and filled == len(buffer):
            buffer = grown(buffer, filled, base)
        elif start > 0:
            buffer = _moved_to_front(buffer, start, filled, chunk_bytes)
            filled -= start
            base += start


def _first_record(buffer: bytearray, filled: int, base: int, at_end: bool) -> int | None:
    """Return the start of the first record; None if only blank and comment lines were read so far.

    Raises:
        FastaSyntaxError: other text precedes the first record.
    """
    if filled < len(BOM_UTF8) and not at_end and BOM_UTF8.startswith(bytes(buffer[:filled])):
        return None
    at = len(BOM_UTF8) if buffer[: len(BOM_UTF8)] == BOM_UTF8 else 0
    while at < filled:
        if buffer[at] == ord(">"):
            return at
        line = _BLANK_LINE.match(buffer, at, filled)
        if line is None:
            binary = _CONTROL.search(buffer, at, min(filled, at + _LOOKED_AT))
            wrong = f"not text, but binary data: {CONVERT}" if binary else _NO_HEADER
            raise FastaSyntaxError(wrong, base + at)
        if line.end() == filled and not at_end:
            return None
        at = line.end()
    return None


def _belongs_to_later_range(
    buffer: bytearray, start: int, filled: int, base: int, end: int, begin: int, found: bool
) -> bool:
    """Return True if it is certain that no record belongs to this range."""
    if not found:
        return begin > 0 and base + filled - 1 >= end
    # Later ranges find only records that follow a line feed. A first record that follows a carriage
    # return, or starts the file, therefore belongs to this range.
    return start > 0 and buffer[start - 1] == ord("\n") and base + start - 1 >= end


def grown(buffer: bytearray, filled: int, base: int) -> bytearray:
    """Return a buffer of twice the size, for a record that did not fit.

    Raises:
        FastaSyntaxError: the record is longer than MAX_RECORD_BYTES.
    """
    if filled >= MAX_RECORD_BYTES:
        raise FastaSyntaxError(
            f"a record of more than {MAX_RECORD_BYTES >> 20} MiB: "
            "is this FASTA, or are its line ends missing?",
            base,
        )
    larger = bytearray(min(2 * len(buffer), MAX_RECORD_BYTES))
    larger[:filled] = buffer[:filled]
    return larger


def _fill(stream: BinaryIO, buffer: bytearray, filled: int, wanted: int) -> int:
    """Read until the buffer holds `wanted` bytes or the stream ends. Return its number of bytes."""
    view = memoryview(buffer)
    while filled < wanted:
        count = stream.readinto(view[filled:wanted])  # type: ignore[attr-defined] # raw streams have it
        if not count:
            break
        filled += count
    return filled


def _boundary(buffer: bytearray, start: int, stop: int) -> int | None:
    """Return the index of the first `>` after a line feed in [start, stop); None without one."""
    found = buffer.find(b"\n>", start, stop)
    return None if found < 0 else found + 1


def last_boundary(buffer: bytearray, start: int, stop: int) -> int:
    """Return the index of the last `>` after a line end in [start, stop), or -1.

    A lone carriage return counts as a line end only if [start, stop) has no `>` after a line feed.
    """
    found = buffer.rfind(b"\n>", start, stop)
    if found < 0:
        found = buffer.rfind(b"\r>", start, stop)
    return found + 1 if found >= 0 else -1


def _moved_to_front(buffer: bytearray, start: int, stop: int, size: int) -> bytearray:
    """Return a buffer of `size` bytes, or more if needed, that begins with buffer[start:stop]."""
    rest = bytes(buffer[start:stop])
    fresh = buffer if len(buffer) == size else bytearray(max(size, len(rest)))
    fresh[: len(rest)] = rest
    return fresh
