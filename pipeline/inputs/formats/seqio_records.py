"""Read records of formats that Biopython's SeqIO parses: swiss, genbank and embl."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import BinaryIO, Final, TextIO, cast

from pipeline.inputs.content_hash import hashed_range
from pipeline.inputs.decompress import decompressed
from pipeline.inputs.error_location import archive_errors
from pipeline.inputs.formats.other_format import fasta_error_of, is_fasta
from pipeline.inputs.record_block import Blocks, block_of_texts, empty_block, identifier
from pipeline.inputs.residues import residues_of
from pipeline.inputs.source import Source
from schemas.errors import InputError
from schemas.vocabulary import Vocabulary

_BLOCK_RECORDS: Final = 1 << 15
_BLOCK_RESIDUES: Final = 16 << 20


def read_seqio(source: Source, vocabulary: Vocabulary, on_bytes: Callable[[int], None]) -> Blocks:
    """Yield blocks of a swiss, genbank or embl file, each with a list of hashes.

    The last block has no records. Its list has the xxh3_128 of each piece of the file (see
    `content_hash`). The lists of other blocks are empty.

    Raises:
        InputError: Biopython refuses the text, or the last record is incomplete. The message names
            the last line that was read.
    """
    from Bio import BiopythonParserWarning, SeqIO

    # if the text is in another format, our error says so
    warnings.simplefilter("ignore", BiopythonParserWarning)
    with (
        hashed_range(source, 0, source.bytes, on_bytes) as hashing,
        archive_errors(source),
        closing(decompressed(cast(BinaryIO, hashing), source.compression)) as stream,
    ):
        lines = _CountedLines(
            io.TextIOWrapper(io.BufferedReader(_Raw(stream)), encoding="utf-8", errors="replace")
        )
        ids: list[str] = []
        texts: list[str] = []
        number = size = 0
        try:
            for record in SeqIO.parse(cast(TextIO, lines), source.format):  # type: ignore[no-untyped-call]
                ids.append(identifier(record.id))
                texts.append(residues_of(str(record.seq), comments=False))
                size += len(texts[-1])
                if len(ids) == _BLOCK_RECORDS or size > _BLOCK_RESIDUES:
                    yield block_of_texts(ids, texts, number, vocabulary), []
                    number, size, ids, texts = number + len(ids), 0, [], []
        except (ValueError, AssertionError, KeyError, IndexError, AttributeError) as error:
            # SeqIO's parsers raise these errors for text in another format
            _refuse_fasta(source)
            raise InputError(
                f"Biopython cannot read this {source.format} file: {error}; check the format, or "
                "download or copy the file again",
                source=source.url,
                line=lines.line,
            ) from error
        if lines.last.strip() not in ("", "//"):
            _refuse_fasta(source)
            raise InputError(
                f"truncated {source.format}: the last record does not end with //; "
                "download or copy it again",
                source=source.url,
                line=lines.line,
            )
        yield block_of_texts(ids, texts, number, vocabulary), []
        yield empty_block(), hashing.finish()


def _refuse_fasta(source: Source) -> None:
    """Raise the error for FASTA in place of another format, if the source is FASTA."""
    if is_fasta(source):
        raise fasta_error_of(source, f"format {source.format}")


class _Raw(io.RawIOBase):
    """Raw stream for io.BufferedReader. It wraps a stream that has only `read` and `readinto`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return cast(int, self._stream.readinto(buffer))  # type: ignore[attr-defined]


class _CountedLines:
    """A text handle that counts lines and keeps the last line that is not blank."""

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self.line = 0
        self.last = ""

    def readline(self) -> str:
        line = self._text.readline()
        self.line += bool(line)
        self.last = line if line.strip() else self.last
        return line

    def read(self, size: int = -1) -> str:
        text = self._text.read(size)
        self.line += text.count("\n")
        self.last = text.rstrip().rpartition("\n")[2] or self.last
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    def __next__(self) -> str:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def close(self) -> None:
        self._text.close()
