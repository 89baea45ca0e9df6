"""The FASTA parser: turn FASTA text into blocks of tokenized records.

docs/reference/format.md states which text the parser accepts and which it refuses. Biopython's
SimpleFastaParser is the reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

import pipeline.inputs.fasta_kernel as kernel
from pipeline.inputs.fasta.chunks import CHUNK_BYTES, whole_records
from pipeline.inputs.fasta.headers import NEXT_RECORD, comments_as_ascii, header_of, identifier_of
from pipeline.inputs.fasta.line_numbers import FastaSyntaxError
from pipeline.inputs.record_block import RecordBlock
from pipeline.inputs.residues import encode, letter_classes, residues_of
from schemas.vocabulary import Vocabulary

BLOCK_BYTES: Final = 24 << 20
"""Approximate number of bytes of text in one RecordBlock."""
_BLOCK_RECORDS: Final = 1 << 17


class FastaParser:
    """Parser that yields blocks of records. Each block reuses the arrays of the block before."""

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
                    self._tokens, self._ids = (
                        np.empty(len(text), dtype=np.uint8) for _ in range(2)
                    )
            yield from self._parse(text, at)
            seen += len(text)
        yield from self._flushed()

    def _parse(self, text: memoryview, base: int) -> Iterator[RecordBlock]:
        """Parse `text`, which begins with `>`. Yield a block whenever the arrays are full."""
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
        """Set the ids of records with blanks between `>` and the id, from record `first` on.

        The kernel ends an id at the first blank, so the ids of these records are empty.
        """
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
        # np.insert keeps the order of values that it inserts at the same index
        places = np.repeat(ends[nameless] - begin, sizes[nameless])
        ids = np.insert(
            self._ids[begin : int(ends[-1])], places, np.frombuffer(b"".join(names), dtype=np.uint8)
        )
        self._ids[begin : begin + ids.size] = ids
        ends[:] = begin + np.cumsum(sizes)

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
        """Yield a block of the records in the arrays. If the arrays are empty, yield nothing."""
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
