"""FASTA as found in the wild, as blocks of tokenized records. Memory is bounded by a chunk and the longest record.

What is read and what is an error is stated in docs/reference/format.md; Biopython's SimpleFastaParser is the oracle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

import pipeline.inputs.fasta_kernel as kernel
from pipeline.inputs.headers import comments_as_ascii, header_of, identifier_of
from pipeline.inputs.residues import RecordBlock, encode, letter_classes, residues_of
from schemas.vocabulary import Vocabulary

CHUNK_BYTES: Final = 1 << 20
"""How much text is read at a time: it is still in the core's cache when it is parsed."""
BLOCK_BYTES: Final = 24 << 20
"""About how much text goes into one RecordBlock."""
MAX_RECORD_BYTES: Final = 128 << 20
"""A longer record is an error: no protein is near it, and a file without line ends would fill the memory."""
_OVERLAP: Final = 64 << 10
"""How far past the end of a range to read for the end of its last record, at a time."""
_BLOCK_RECORDS: Final = 1 << 17

NEXT_RECORD: Final = re.compile(rb"[\r\n]>")
_BLANK_LINE: Final = re.compile(rb"[ \t\v\f]*(?:;[^\r\n]*)?(?:\r\n|\r|\n|\Z)")
_BOM: Final = b"\xef\xbb\xbf"


class FastaSyntaxError(Exception):
    """A rule of FASTA is broken at byte `offset` of the decompressed file; whoever can reopen the file finds the line."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, offset)
        self.message = message
        self.offset = offset


class FastaParser:
    """Parses chunks of whole records; its arrays are reused from block to block."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        block_bytes: int = BLOCK_BYTES,
        block_records: int = _BLOCK_RECORDS,
    ) -> None:
        self._classes = letter_classes(vocabulary)
        self._unk = vocabulary.unk
        self._chunk = chunk_bytes
        self._block_bytes = block_bytes
        self._tokens: NDArray[np.uint8] = np.empty(block_bytes + chunk_bytes, dtype=np.uint8)
        self._ids: NDArray[np.uint8] = np.empty(block_bytes + chunk_bytes, dtype=np.uint8)
        self._ends, self._id_ends, self._offset, self._unknown = (
            np.empty(block_records, dtype=np.int64) for _ in range(4)
        )
        self._count = 0  # records in the arrays

    def read(
        self, stream: BinaryIO, *, begin: int = 0, end: int | None = None
    ) -> Iterator[RecordBlock]:
        """Parse the records that belong to the byte range [begin, end) of a file, `stream` standing at `begin`.

        A record belongs to the range that holds the line end before it, the first record to the range from 0, so that
        ranges that tile a file find every record once.

        Args:
            stream: plain bytes.
            end: None for the end of the file.
        Raises:
            FastaSyntaxError: the text breaks a rule of FASTA.
        """
        seen = 0
        for text, at in self._records(stream, begin, end):
            if seen + len(text) > self._block_bytes:
                yield from self._flushed()
                seen = 0
                if len(text) > self._tokens.size:
                    self._tokens, self._ids = (
                        np.empty(len(text), dtype=np.uint8) for _ in range(2)
                    )
            yield from self._parse(text, at)
            seen += len(text)
        yield from self._flushed()

    def _records(
        self, stream: BinaryIO, begin: int, end: int | None
    ) -> Iterator[tuple[memoryview, int]]:
        """Runs of whole records, each with its offset in the file."""
        buffer = bytearray(self._chunk)
        filled, base = 0, begin  # buffer[:filled] is the file from `base` on
        started = at_end = False
        overlap = _OVERLAP
        while True:
            wanted = (
                len(buffer) if end is None else min(len(buffer), max(filled, end - base) + overlap)
            )
            overlap = (
                2 * overlap if end is not None and base + filled > end else _OVERLAP
            )  # each time, what is there is searched anew
            filled = _fill(stream, buffer, filled, wanted)
            at_end = filled < wanted
            start = 0
            if not started:
                first = (
                    self._first_record(buffer, filled, base, at_end)
                    if begin == 0
                    else _boundary(buffer, 0, filled)
                )
                started = first is not None
                start = first if first is not None else filled - 1 if begin > 0 else 0
                if end is not None and _belongs_further_on(
                    buffer, start, filled, base, end, begin, started
                ):
                    return
            stop = filled if at_end else None
            if started and end is not None and base + filled > end:
                beyond = _boundary(buffer, max(start, end - base), filled)
                if beyond is not None:
                    stop, at_end = beyond, True
            if started and stop is None:
                stop = _last_boundary(buffer, start, filled)
            if stop is not None and stop > start and started:
                yield memoryview(buffer)[start:stop], base + start
                start = stop
            if at_end:
                return
            if start == 0 and filled == len(buffer):
                buffer = _grown(buffer, filled, base)
            elif start > 0:
                buffer = _moved_to_front(buffer, start, filled, self._chunk)
                filled -= start
                base += start

    @staticmethod
    def _first_record(buffer: bytearray, filled: int, base: int, at_end: bool) -> int | None:
        """Where the first record of a file starts; None if only blank and comment lines were seen so far.

        Raises:
            FastaSyntaxError: there is other text before it.
        """
        if filled < len(_BOM) and not at_end and _BOM.startswith(bytes(buffer[:filled])):
            return None
        at = len(_BOM) if buffer[: len(_BOM)] == _BOM else 0
        while at < filled:
            if buffer[at] == ord(">"):
                return at
            line = _BLANK_LINE.match(buffer, at, filled)
            if line is None:
                raise FastaSyntaxError("expected '>' before residues", base + at)
            if line.end() == filled and not at_end:
                return None
            at = line.end()
        return None

    def _parse(self, text: memoryview, base: int) -> Iterator[RecordBlock]:
        """Add the records in `text`, which starts with `>`; a block comes out when the arrays are full."""
        buf = np.frombuffer(text, dtype=np.uint8)
        arrays = (self._tokens, self._ends, self._ids, self._id_ends, self._offset, self._unknown)
        at, state = 0, kernel.FULL
        while state != kernel.DONE:
            first = self._count
            state, at, self._count = kernel.parse(buf, at, self._classes, self._unk, *arrays, first)
            self._name_indented(text, first)
            self._offset[first : self._count] += base
            if state == kernel.BINARY:
                raise FastaSyntaxError(f"byte 0x{buf[at]:02x}: binary data", base + at)
            if state == kernel.ODD:
                at = self._parse_plainly(text, at, base, self._count)
                self._count += 1
                state = kernel.DONE if at == len(text) else kernel.FULL
            if self._count == self._ends.size:
                yield from self._flushed()

    def _name_indented(self, text: memoryview, first: int) -> None:
        """Give records from `first` on the id that stands behind blanks, where the kernel found none: its ids end at the first blank."""
        ends = self._id_ends[first : self._count]
        begin = int(self._id_ends[first - 1]) if first else 0
        sizes = np.diff(ends, prepend=begin)
        if sizes.all():
            return
        nameless = np.flatnonzero(sizes == 0)
        names = [
            identifier_of(header_of(text, at)) for at in self._offset[first + nameless].tolist()
        ]
        sizes[nameless] = [len(name) for name in names]
        # np.insert keeps the order of what goes to one place
        places = np.repeat(ends[nameless] - begin, sizes[nameless])
        ids = np.insert(
            self._ids[begin : int(ends[-1])], places, np.frombuffer(b"".join(names), dtype=np.uint8)
        )
        self._ids[begin : begin + ids.size] = ids
        ends[:] = begin + np.cumsum(sizes)

    def _parse_plainly(self, text: memoryview, at: int, base: int, record: int) -> int:
        """Append the one record at `at` by the plain rules; return where the next one starts."""
        following = NEXT_RECORD.search(text, at)
        stop = len(text) if following is None else following.end() - 1
        raw = bytes(text[at:stop])
        header = header_of(raw, 0)
        body = comments_as_ascii(raw[len(header) :])
        try:
            residues = residues_of(body.decode("utf-8"), comments=True)
        except UnicodeDecodeError as error:
            raise FastaSyntaxError(
                f"byte 0x{body[error.start]:02x} is not UTF-8: binary data or another encoding",
                base + at + len(header) + error.start,
            ) from error
        except ValueError as error:
            message, position = error.args
            before = len(body.decode("utf-8")[:position].encode())
            raise FastaSyntaxError(message, base + at + len(header) + before) from error
        tokens, unknown = encode(residues, self._classes, self._unk)
        if b"\0" in header:
            raise FastaSyntaxError("byte 0x00: binary data", base + at + header.index(b"\0"))
        identifier = identifier_of(header)
        first = int(self._ends[record - 1]) if record else 0
        first_id = int(self._id_ends[record - 1]) if record else 0
        self._tokens[first : first + tokens.size] = tokens
        self._ids[first_id : first_id + len(identifier)] = np.frombuffer(identifier, dtype=np.uint8)
        self._ends[record] = first + tokens.size
        self._id_ends[record] = first_id + len(identifier)
        self._offset[record] = base + at
        self._unknown[record] = unknown
        return stop

    def _flushed(self) -> Iterator[RecordBlock]:
        """The records so far as a block, unless there are none."""
        count, self._count = self._count, 0
        if count == 0:
            return
        ends, id_ends = self._ends[:count], self._id_ends[:count]
        yield RecordBlock(
            tokens=self._tokens[: ends[-1]],
            ends=ends,
            ids=self._ids[: id_ends[-1]],
            id_ends=id_ends,
            offset=self._offset[:count],
            unknown=self._unknown[:count],
        )


def _belongs_further_on(
    buffer: bytearray, start: int, filled: int, base: int, end: int, begin: int, found: bool
) -> bool:
    """Whether the range up to `end` holds no record: the line end before the first one lies at `end` or beyond."""
    if not found:
        return begin > 0 and base + filled - 1 >= end
    # no line feed before it: ranges further on look for one, so it is the first range's
    return start > 0 and buffer[start - 1] == ord("\n") and base + start - 1 >= end


def _grown(buffer: bytearray, filled: int, base: int) -> bytearray:
    """A buffer of twice the size, for a record that did not fit.

    Raises:
        FastaSyntaxError: the record is too long to be one.
    """
    if filled >= MAX_RECORD_BYTES:
        raise FastaSyntaxError(
            f"a record of more than {MAX_RECORD_BYTES >> 20} MiB: is this FASTA, are its line ends missing?",
            base,
        )
    larger = bytearray(min(2 * len(buffer), MAX_RECORD_BYTES))
    larger[:filled] = buffer[:filled]
    return larger


def _fill(stream: BinaryIO, buffer: bytearray, filled: int, wanted: int) -> int:
    """Read until `wanted` bytes are in the buffer or the stream ends; how many there are."""
    view = memoryview(buffer)
    while filled < wanted:
        count = stream.readinto(view[filled:wanted])  # type: ignore[attr-defined]
        if not count:
            break
        filled += count
    return filled


def _boundary(buffer: bytearray, start: int, stop: int) -> int | None:
    """Position of the first `>` in (start, stop) that follows a line feed at or after `start`."""
    found = buffer.find(b"\n>", start, stop)
    return None if found < 0 else found + 1


def _last_boundary(buffer: bytearray, start: int, stop: int) -> int:
    """Position of the last `>` after a line end in [start, stop); -1 if there is none. Lone carriage returns count if need be."""
    found = buffer.rfind(b"\n>", start, stop)
    if found < 0:
        found = buffer.rfind(b"\r>", start, stop)
    return found + 1 if found >= 0 else -1


def _moved_to_front(buffer: bytearray, start: int, stop: int, size: int) -> bytearray:
    """A buffer that begins with buffer[start:stop], as large as a chunk again where the rest allows."""
    rest = bytes(buffer[start:stop])
    fresh = buffer if len(buffer) == size else bytearray(max(size, len(rest)))
    fresh[: len(rest)] = rest
    return fresh


def line_of(stream: BinaryIO, offset: int) -> int:
    """The line, from 1, that holds byte `offset`, or the last line; `stream` stands at the start. A lone carriage return ends a line."""
    lines, seen, carry, block = 1, 0, b"", b""
    while seen < offset:
        last = block
        block = stream.read(min(1 << 20, offset - seen))
        if not block:
            return max(1, lines - last.endswith((b"\n", b"\r")))
        seen += len(block)
        lines += block.count(b"\n") + block.count(b"\r") - (carry + block).count(b"\r\n")
        carry = block[-1:] if block.endswith(b"\r") else b""
    return lines
