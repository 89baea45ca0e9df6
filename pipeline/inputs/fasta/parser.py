"""The FASTA parser: turn FASTA text into blocks of tokenized records.

docs/reference/format.md states which text the parser accepts and which it refuses. Biopython's
SimpleFastaParser is the reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np

import pipeline.inputs.fasta_kernel as kernel
from pipeline.inputs.fasta.chunks import CHUNK_BYTES, whole_records
from pipeline.inputs.fasta.headers import NEXT_RECORD, comments_as_ascii, divided, header_of
from pipeline.inputs.fasta.line_numbers import FastaSyntaxError
from pipeline.inputs.file_kinds import TO_UTF8
from pipeline.inputs.record_block import RecordBlock
from pipeline.inputs.residues import BINARY_DATA, encode, letter_classes, residues_of
from schemas.vocabulary import Vocabulary

BLOCK_BYTES: Final = 24 << 20
"""Approximate number of bytes of text in one RecordBlock."""
_BLOCK_RECORDS: Final = 1 << 17


class FastaParser:
    """Parser that yields blocks of records. Each block reuses the arrays of the previous block."""

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
        self._allocate_bytes(block_bytes + chunk_bytes)
        self._ends, self._id_ends, self._description_ends, self._offset, self._unknown = (
            np.empty(block_records, dtype=np.int64) for _ in range(5)
        )
        self._count = 0  # number of records in the arrays

    def read(
        self, stream: BinaryIO, *, begin: int = 0, end: int | None = None
    ) -> Iterator[RecordBlock]:
        """Parse the records of the byte range [begin, end) of a file.

        A record belongs to the range that holds the line end before the record. The first record
        belongs to the range that begins at 0. Consecutive ranges of a file therefore yield each
        record once.

        Args:
            stream: decompressed bytes of the file, positioned at `begin`.
            end: end of the range; None for the end of the file.
        Raises:
            FastaSyntaxError: the text breaks a rule of FASTA.
        """
        seen = 0
        for text, at in whole_records(stream, begin, end, self._chunk):
            if seen + len(text) > self._block_bytes:
                yield from self._flushed()
                seen = 0
                if len(text) > self._tokens.size:
                    self._allocate_bytes(len(text))
            yield from self._parse(text, at)
            seen += len(text)
        yield from self._flushed()

    def _allocate_bytes(self, size: int) -> None:
        """Allocate arrays for `size` bytes of text."""
        self._tokens, self._ids, self._descriptions = (
            np.empty(size, dtype=np.uint8) for _ in range(3)
        )

    def _parse(self, text: memoryview, base: int) -> Iterator[RecordBlock]:
        """Parse `text`, which begins with `>`. Yield a block whenever the arrays are full."""
        buf = np.frombuffer(text, dtype=np.uint8)
        headers = (self._ids, self._id_ends, self._descriptions, self._description_ends)
        arrays = (self._tokens, self._ends, *headers, self._offset, self._unknown)
        at, state = 0, kernel.FULL
        while state != kernel.DONE:
            first = self._count
            state, at, self._count = kernel.parse(buf, at, self._classes, self._unk, *arrays, first)
            self._offset[first : self._count] += base
            if state == kernel.BINARY:
                raise FastaSyntaxError(f"byte 0x{buf[at]:02x}: {BINARY_DATA}", base + at)
            if state == kernel.ODD:
                at = self._parse_plainly(text, at, base, self._count)
                self._count += 1
                state = kernel.DONE if at == len(text) else kernel.FULL
            if self._count == self._ends.size:
                yield from self._flushed()

    def _parse_plainly(self, text: memoryview, at: int, base: int, record: int) -> int:
        """Append the record at `at` without the kernel; return the start of the next record."""
        following = NEXT_RECORD.search(text, at)
        stop = len(text) if following is None else following.end() - 1
        raw = bytes(text[at:stop])
        header = header_of(raw, 0)
        body = comments_as_ascii(raw[len(header) :])
        try:
            residues = residues_of(body.decode("utf-8"), comments=True)
        except UnicodeDecodeError as error:
            raise FastaSyntaxError(
                f"byte 0x{body[error.start]:02x} is not UTF-8: binary data or another encoding; "
                f"convert text to UTF-8, {TO_UTF8}",
                base + at + len(header) + error.start,
            ) from error
        except ValueError as error:
            message, position = error.args
            before = len(body.decode("utf-8")[:position].encode())
            raise FastaSyntaxError(message, base + at + len(header) + before) from error
        tokens, unknown = encode(residues, self._classes, self._unk)
        if b"\0" in header:
            raise FastaSyntaxError(f"byte 0x00: {BINARY_DATA}", base + at + header.index(b"\0"))
        identifier, description = (np.frombuffer(part, np.uint8) for part in divided(header))
        for values, ends, added in (
            (self._tokens, self._ends, tokens),
            (self._ids, self._id_ends, identifier),
            (self._descriptions, self._description_ends, description),
        ):
            first = int(ends[record - 1]) if record else 0
            values[first : first + added.size] = added
            ends[record] = first + added.size
        self._offset[record] = base + at
        self._unknown[record] = unknown
        return stop

    def _flushed(self) -> Iterator[RecordBlock]:
        """Yield a block of the records in the arrays. If the arrays are empty, yield nothing."""
        count, self._count = self._count, 0
        if count == 0:
            return
        ends, id_ends = self._ends[:count], self._id_ends[:count]
        description_ends = self._description_ends[:count]
        yield RecordBlock(
            tokens=self._tokens[: ends[-1]],
            ends=ends,
            ids=self._ids[: id_ends[-1]],
            id_ends=id_ends,
            descriptions=self._descriptions[: description_ends[-1]],
            description_ends=description_ends,
            offset=self._offset[:count],
            unknown=self._unknown[:count],
        )
